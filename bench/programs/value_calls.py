"""Short programs around libraries that read indices, masks or lengths of the device.

    value_calls.py NAME [DEVICE [SIZE]]

Names: crf (torchcrf: Viterbi decoding), differential (torchdiffeq: dopri5 with the adjoint method), stochastic
(torchsde: Milstein), conformer (torchaudio: an encoder for sequences of varying length, CTC), metrics (lightning with
torchmetrics), averaged (update_bn of PyTorch), forecast (pytorch-forecasting: a temporal fusion transformer), pairs
(pytorch-metric-learning: a miner of triplets), augmented (kornia: random images).

SIZE is the number of examples of a batch, or of paths of a differential equation.
"""

import sys

import torch
from torch import nn
from torch.nn import functional

NAME = sys.argv[1]
DEVICE = (sys.argv[2:] or ["cuda"])[0]
SIZE = int((sys.argv[3:] or ["0"])[0])
STEPS = 3


def train(parameters, loss_of):
    """Trains a few steps."""
    optimizer = torch.optim.Adam(parameters)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()


def crf():
    """Tags sequences of varying length."""
    from torchcrf import CRF

    scores = nn.Sequential(nn.Embedding(100, 32), nn.Linear(32, 5)).to(DEVICE)
    layer = CRF(5, batch_first=True).to(DEVICE)
    size = SIZE or 8
    lengths = torch.randint(5, 20, (size,))
    lengths[0] = 20
    mask = (torch.arange(20)[None] < lengths[:, None]).to(DEVICE)
    words, tags = torch.randint(100, (size, 20)).to(DEVICE), torch.randint(5, (size, 20)).to(DEVICE)
    train([*scores.parameters(), *layer.parameters()], lambda: -layer(scores(words), tags, mask=mask))
    print(sum(map(len, layer.decode(scores(words), mask=mask))), "tags")


class Flow(nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self):
        super().__init__()
        self.drift = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
        self.noise = nn.Linear(2, 2)

    def forward(self, _, state):
        return self.drift(state)

    def f(self, _, state):
        return self.drift(state)

    def g(self, _, state):
        return self.noise(state).sigmoid()


def differential():
    """Solves an ordinary differential equation whose right-hand side is a network."""
    from torchdiffeq import odeint_adjoint

    flow, times = Flow().to(DEVICE), torch.linspace(0, 1, 10, device=DEVICE)
    start = torch.rand(SIZE or 100, 2).to(DEVICE)
    train(flow.drift.parameters(), lambda: odeint_adjoint(flow, start, times).abs().mean())


def stochastic():
    """Solves a stochastic differential equation."""
    from torchsde import sdeint

    flow, times = Flow().to(DEVICE), torch.linspace(0, 1, 20, device=DEVICE)
    start = torch.full((SIZE or 32, 2), 0.1, device=DEVICE)
    train(flow.parameters(), lambda: sdeint(flow, start, times, dt=0.02, method="milstein").square().mean())


def conformer():
    """Encodes sound of varying length."""
    from torchaudio.models import Conformer

    encoder = Conformer(80, num_heads=4, ffn_dim=128, num_layers=2, depthwise_conv_kernel_size=31).to(DEVICE)
    size = SIZE or 4
    lengths = torch.tensor([(190, 60, 120, 80)[row % 4] for row in range(size)]).to(DEVICE)
    sound = torch.rand(size, int(lengths.max()), 80, device=DEVICE)
    words, num_words = torch.randint(1, 80, (size, 10), device=DEVICE), torch.full((size,), 10, device=DEVICE)

    def loss():
        encoded, left = encoder(sound, lengths)
        return functional.ctc_loss(encoded.log_softmax(-1).transpose(0, 1), words, left, num_words)

    train(encoder.parameters(), loss)


def metrics():
    """Trains a classifier whose metrics check the labels, until it no longer improves."""
    import lightning
    import torchmetrics
    from torch.utils.data import DataLoader, TensorDataset

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
            self.right = torchmetrics.Accuracy("multiclass", num_classes=10)
            self.confused = torchmetrics.ConfusionMatrix("multiclass", num_classes=10)

        def training_step(self, batch, _):
            loss = functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, _):
            scores = self.net(batch[0])
            self.right(scores, batch[1])
            self.confused.update(scores, batch[1])
            self.log("right", self.right)
            self.log("validation loss", functional.cross_entropy(scores, batch[1]))

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    size = SIZE or 32
    rows = 4 * size
    loader = DataLoader(TensorDataset(torch.randn(rows, 784), torch.randint(10, (rows,))), size)
    lightning.Trainer(
        max_epochs=2,
        accelerator="gpu" if DEVICE == "cuda" else "cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[lightning.pytorch.callbacks.EarlyStopping("validation loss")],
    ).fit(Classifier(), loader, loader)


def averaged():
    """Averages weights, and then the statistics of batch norm."""
    from torch.optim.swa_utils import AveragedModel, update_bn

    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30 * 30, 10)).to(
        DEVICE
    )
    average = AveragedModel(net)
    batches = [(torch.randn(SIZE or 8, 3, 32, 32), torch.randint(10, (SIZE or 8,))) for _ in range(4)]
    rows, labels = (part.to(DEVICE) for part in batches[0])
    train(net.parameters(), lambda: functional.cross_entropy(net(rows), labels))
    average.update_parameters(net)
    update_bn(batches, average, device=DEVICE)


def forecast():
    """Forecasts short series."""
    import lightning.pytorch
    import numpy as np
    import pandas as pd
    from pytorch_forecasting import TemporalFusionTransformer, TimeSeriesDataSet

    length = max(60, SIZE + 8)  # each group has about SIZE series that are long enough
    table = pd.DataFrame(
        {
            "group": np.repeat(["a", "b", "c"], length),
            "time": np.tile(np.arange(length), 3),
            "value": np.random.default_rng(0).random(3 * length).astype("float32"),
        }
    )
    series = TimeSeriesDataSet(
        table,
        time_idx="time",
        target="value",
        group_ids=["group"],
        max_encoder_length=12,
        min_encoder_length=4,
        max_prediction_length=4,
        time_varying_unknown_reals=["value"],
        static_categoricals=["group"],
        add_relative_time_idx=True,
    )
    lightning.pytorch.Trainer(
        max_epochs=1,
        limit_train_batches=STEPS,
        accelerator="gpu" if DEVICE == "cuda" else "cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    ).fit(
        TemporalFusionTransformer.from_dataset(series, hidden_size=8, optimizer="adam"),
        series.to_dataloader(train=True, batch_size=SIZE or 16),
    )


def pairs():
    """Learns distances with triplets that a miner selects."""
    from pytorch_metric_learning import losses, miners

    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).to(DEVICE)
    size = SIZE or 64
    rows, labels = torch.randn(size, 64, device=DEVICE), torch.randint(8, (size,)).to(DEVICE)
    loss, miner = losses.TripletMarginLoss(), miners.MultiSimilarityMiner()

    def loss_of():
        found = net(rows)
        return loss(found, labels, miner(found, labels))

    train(net.parameters(), loss_of)


def augmented():
    """Trains on randomly changed images."""
    import kornia

    changes = kornia.augmentation.AugmentationSequential(
        kornia.augmentation.RandomHorizontalFlip(p=0.5),
        kornia.augmentation.RandomAffine(15.0),
        kornia.augmentation.RandomErasing(p=0.5),
        data_keys=["input"],
    )
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    net = net.to(DEVICE)
    size = SIZE or 8
    images, labels = torch.rand(size, 3, 64, 64, device=DEVICE), torch.randint(10, (size,), device=DEVICE)
    train(net.parameters(), lambda: functional.cross_entropy(net(changes(images)), labels))


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[NAME]()
