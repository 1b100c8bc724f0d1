"""Trains ResNet-50 with one image, as PyTorch's article on memory snapshots does: 5 steps of SGD with momentum."""

import argparse
import json
from pathlib import Path

import torch
from torchvision.models import resnet50

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
given = parser.parse_args()

model = resnet50().to("cuda")
images = torch.randn(1, 3, 224, 224, device="cuda")
labels = torch.rand_like(model(images))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
loss = torch.nn.CrossEntropyLoss()
for _ in range(5):
    loss(model(images), labels).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
torch.cuda.synchronize()
given.out.write_text(
    json.dumps({"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()})
)
