"""Short programs around libraries for one field, as their first pages show them: domain_calls.py NAME [DEVICE [SIZE]].

Names: yolo (training and validation of ultralytics), embeddings (contrastive training of sentence_transformers),
quantised (a language model with int8 weights of torchao and a static key-value cache), volumes (MONAI's U-Net for
volumes, inference by a sliding window), derivatives (torch.func: an ensemble, gradients of each sample, Hessians; then
second derivatives with L-BFGS).

SIZE is the number of examples of a batch.
"""

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


def yolo():
    """Trains a YOLOv8n from its configuration on images with one box."""
    from PIL import Image
    from ultralytics import YOLO

    root = Path("boxes").absolute()
    for part in ("train", "val"):
        images, labels = root / "images" / part, root / "labels" / part
        images.mkdir(parents=True, exist_ok=True)
        labels.mkdir(parents=True, exist_ok=True)
        for number in range(max(8, SIZE)):
            pixels = GENERATOR.integers(0, 256, (64, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(images / f"{number}.jpg")
            (labels / f"{number}.txt").write_text("0 0.5 0.5 0.4 0.4\n", encoding="utf-8")
    text = f"path: {root}\ntrain: images/train\nval: images/val\nnames:\n  0: box\n"
    (root / "data.yaml").write_text(text, encoding="utf-8")
    YOLO("yolov8n.yaml").train(
        data=str(root / "data.yaml"),
        epochs=2,
        imgsz=160,
        batch=SIZE or 4,
        workers=0,
        device=0 if DEVICE == "cuda" else "cpu",
        project=str(root / "runs"),
        exist_ok=True,
        plots=False,
        amp=False,
    )


def embeddings():
    """Trains a small BERT with pairs of sentences, and encodes two."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
        models,
    )
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = Path("bert").absolute()
    folder.mkdir(exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{number}" for number in range(500))]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    config = BertConfig(
        vocab_size=len(words), hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512
    )
    BertModel(config).save_pretrained(folder)
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    transformer = models.Transformer(str(folder), max_seq_length=64)
    model = SentenceTransformer(modules=[transformer, models.Pooling(config.hidden_size)], device=DEVICE)
    texts = [" ".join(f"word{(7 * row + 13 * at) % 500}" for at in range(40)) for row in range(max(257, 2 * SIZE + 1))]
    pairs = Dataset.from_dict({"anchor": texts[:-1], "positive": texts[1:]})
    arguments = SentenceTransformerTrainingArguments(
        output_dir="out",
        max_steps=4,
        per_device_train_batch_size=SIZE or 64,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=DEVICE == "cpu",
    )
    loss = losses.MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=pairs, loss=loss).train()
    model.encode(texts[:2])


def quantised():
    """Generates 32 tokens with weights of 8 bits."""
    from torchao.quantization import Int8WeightOnlyConfig, quantize_
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    model = LlamaForCausalLM(config).to(DEVICE, torch.bfloat16).eval()
    quantize_(model, Int8WeightOnlyConfig())
    tokens = torch.randint(0, 1000, (SIZE or 4, 64), device=DEVICE)
    cache = StaticCache(config=config, max_cache_len=128)
    with torch.inference_mode():
        for _ in range(32):
            logits = model(tokens, past_key_values=cache, use_cache=True).logits
            tokens = logits[:, -1:].argmax(-1)


def volumes():
    """Trains a U-Net on parts of volumes, then covers a whole one with a sliding window."""
    from monai.inferers import sliding_window_inference
    from monai.losses import DiceCELoss
    from monai.networks.nets import UNet

    net = UNet(3, 1, 2, (16, 32, 64, 128), (2, 2, 2), num_res_units=2).to(DEVICE)
    criterion, optimizer = DiceCELoss(to_onehot_y=True, softmax=True), torch.optim.Adam(net.parameters())
    for _ in range(3):
        image = torch.randn(SIZE or 2, 1, 32, 32, 32, device=DEVICE)
        label = torch.from_numpy(GENERATOR.integers(0, 2, (SIZE or 2, 1, 32, 32, 32))).to(DEVICE)
        optimizer.zero_grad()
        criterion(net(image), label).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        sliding_window_inference(torch.randn(1, 1, 48, 48, 48, device=DEVICE), (32, 32, 32), 4, net)


def derivatives():
    """Trains eight networks at once and one with second derivatives in its loss; computes other derivatives."""
    from torch.func import functional_call, grad, hessian, stack_module_state, vmap

    nets = [nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 10)).to(DEVICE) for _ in range(8)]
    stacked, buffers = stack_module_state(nets)
    optimizer = torch.optim.Adam(list(stacked.values()))
    size = SIZE or 64
    rows, labels = torch.randn(size, 256, device=DEVICE), torch.randint(0, 10, (size,), device=DEVICE)
    for _ in range(3):
        outputs = vmap(lambda own, rest: functional_call(nets[0], (own, rest), (rows,)))(stacked, buffers)
        optimizer.zero_grad()
        functional.cross_entropy(outputs.flatten(0, 1), labels.repeat(8)).backward()
        optimizer.step()
    own = {name: value.detach() for name, value in nets[0].named_parameters()}

    def loss(own, row, label):
        return functional.cross_entropy(functional_call(nets[0], own, (row[None],)), label[None])

    vmap(grad(loss), in_dims=(None, 0, 0))(own, rows, labels)
    vmap(hessian(lambda row: functional_call(nets[0], own, (row,)).sum()))(rows[:16])

    net = nn.Sequential(nn.Linear(2, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)).to(DEVICE)
    steps = torch.optim.LBFGS(net.parameters(), max_iter=5, line_search_fn="strong_wolfe")
    points = torch.rand(4096, 2, device=DEVICE, requires_grad=True)

    def residual():
        steps.zero_grad()
        values = net(points)
        first = torch.autograd.grad(values.sum(), points, create_graph=True)[0]
        second = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)[0][:, 0]
        value = (first[:, 1] - second).square().mean() + values.square().mean()
        value.backward()
        return value

    for _ in range(3):
        steps.step(residual)


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[NAME]()
