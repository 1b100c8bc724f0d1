"""Short programs around frameworks, as their first pages show them: framework_calls.py NAME [DEVICE [SIZE]].

Names: keras (its torch backend), fastai, skorch, gpytorch (these train with loops of their own), diffusion
(denoising_diffusion_pytorch), vit (vit_pytorch with float16, GradScaler and an average of the weights), sam (inference
of segment_anything), overlap (a second stream, pinned memory, worker processes, recomputing, a captured graph).

SIZE is the number of examples of a batch, or of points of the Gaussian process. segment_anything has no size.
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

NAME = sys.argv[1]
DEVICE = (sys.argv[2:] or ["cuda"])[0]
SIZE = int((sys.argv[3:] or ["0"])[0])
GENERATOR = np.random.default_rng(0)
HALF = torch.bfloat16 if DEVICE == "cpu" else torch.float16


def write_images(names):
    """Writes images of 64 x 64 pixels into a new folder; returns the folder."""
    from PIL import Image

    folder = Path("images")
    folder.mkdir(exist_ok=True)
    for name in names:
        Image.fromarray(GENERATOR.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(folder / name)
    return folder


def keras():
    """Trains, evaluates and predicts with a small convolutional network."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    from keras import layers

    images, labels = GENERATOR.random((256, 28, 28, 1), dtype=np.float32), GENERATOR.integers(0, 10, 256)
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(loss="sparse_categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
    model.fit(images, labels, batch_size=SIZE or 64, epochs=2, verbose=0)
    model.evaluate(images, labels, verbose=0)
    model.predict(images[:5], verbose=0)


def fastai():
    """Tunes a resnet18 on 32 images of two kinds."""
    from fastai.vision import all as vision

    folder = write_images(f"{kind}_{number}.jpg" for kind in ("cat", "dog") for number in range(20))
    loaders = vision.ImageDataLoaders.from_name_func(
        folder,
        vision.get_image_files(folder),
        seed=42,
        label_func=lambda name: name.split("_")[0],
        item_tfms=vision.Resize(64),
        bs=SIZE or 8,
        num_workers=0,
        device=torch.device(DEVICE),
    )
    learner = vision.vision_learner(loaders, vision.resnet18, metrics=vision.error_rate, pretrained=False)
    learner.fine_tune(1)


def skorch():
    """Searches the better of two widths of a perceptron."""
    from sklearn.model_selection import GridSearchCV
    from skorch import NeuralNetClassifier

    class Perceptron(nn.Module):
        def __init__(self, width=64):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(20, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, 2), nn.Softmax(-1)
            )

        def forward(self, values):
            return self.layers(values)

    own = {"batch_size": SIZE} if SIZE else {}
    network = NeuralNetClassifier(Perceptron, max_epochs=3, lr=0.1, device=DEVICE, verbose=0, **own)
    search = GridSearchCV(network, {"module__width": [16, 32]}, cv=2, scoring="accuracy")
    rows = max(500, 4 * SIZE)
    search.fit(GENERATOR.random((rows, 20), dtype=np.float32), GENERATOR.integers(0, 2, rows))


def gpytorch():
    """Fits an exact Gaussian process to points, and predicts."""
    import gpytorch

    class Process(gpytorch.models.ExactGP):
        def __init__(self, *given):
            super().__init__(*given)
            self.mean = gpytorch.means.ConstantMean()
            self.covariance = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, points):
            return gpytorch.distributions.MultivariateNormal(self.mean(points), self.covariance(points))

    points = torch.linspace(0, 1, SIZE or 500).to(DEVICE)
    values = torch.sin(points * 6)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(DEVICE)
    model = Process(points, values, likelihood).to(DEVICE).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(5):
        optimizer.zero_grad()
        (-objective(model(points), values)).backward()
        optimizer.step()
    model.eval(), likelihood.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        likelihood(model(points[:50]))


def diffusion():
    """Trains a small diffusion model on 120 images with its Trainer, and samples from it."""
    from denoising_diffusion_pytorch import GaussianDiffusion, Trainer, Unet

    folder = write_images(f"{number}.jpg" for number in range(120))
    model = GaussianDiffusion(Unet(dim=16, dim_mults=(1, 2, 4)), image_size=32, timesteps=50, sampling_timesteps=5)
    Trainer(
        model,
        str(folder),
        train_batch_size=SIZE or 8,
        train_num_steps=4,
        gradient_accumulate_every=2,
        save_and_sample_every=3,
        num_samples=4,
        calculate_fid=False,
        results_folder="results",
    ).train()


def vit():
    """Trains a small vision transformer under autocast, and saves and loads its weights."""
    from ema_pytorch import EMA
    from vit_pytorch import ViT

    model = ViT(image_size=128, patch_size=16, num_classes=100, dim=256, depth=4, heads=8, mlp_dim=512).to(DEVICE)
    average = EMA(model, beta=0.99, update_every=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler(DEVICE)
    for _ in range(4):
        size = SIZE or 8
        images, labels = torch.randn(size, 3, 128, 128).to(DEVICE), (torch.arange(size) % 100).to(DEVICE)
        with torch.autocast(DEVICE, dtype=HALF):
            loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        average.update()
    torch.save(model.state_dict(), "weights.pt")
    model.load_state_dict(torch.load("weights.pt", map_location=DEVICE))


def sam():
    """Segments an image around a point."""
    from segment_anything import SamPredictor, sam_model_registry

    predictor = SamPredictor(sam_model_registry["vit_b"]().to(DEVICE))
    predictor.set_image(GENERATOR.integers(0, 256, (240, 320, 3), dtype=np.uint8))
    predictor.predict(np.array([[100, 100]]), np.array([1]), multimask_output=True)


def overlap():
    """Copies batches on a second stream while a transformer recomputes its layers; then replays a captured layer."""
    from torch.utils.checkpoint import checkpoint
    from torch.utils.data import DataLoader, TensorDataset

    layers = nn.ModuleList(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True) for _ in range(4)).to(DEVICE)
    optimizer = torch.optim.Adam(layers.parameters())
    api = getattr(torch, DEVICE)
    stream = api.Stream() if DEVICE != "cpu" else None
    data = TensorDataset(torch.randn(max(64, 2 * SIZE), 32, 128))
    for (batch,) in DataLoader(data, batch_size=SIZE or 8, num_workers=2, pin_memory=stream is not None):
        values = batch
        if stream is not None:
            with api.stream(stream):
                values = batch.to(DEVICE, non_blocking=True)
            api.current_stream().wait_stream(stream)
            values.record_stream(api.current_stream())
        for layer in layers:
            values = checkpoint(layer, values, use_reentrant=False)
        values.pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if DEVICE == "cuda":
        graph, given = torch.cuda.CUDAGraph(), torch.randn(8, 32, 128, device=DEVICE)
        layers.eval()
        with torch.no_grad():
            with torch.cuda.stream(stream):
                layers[0](given)
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph):
                layers[0](given)
            graph.replay()


if __name__ == "__main__":
    if DEVICE == "npu":
        import torch_npu  # noqa: F401 - for torch.npu
    torch.manual_seed(0)
    globals()[NAME]()
