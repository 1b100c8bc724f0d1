"""ResNet-50 at 224 x 224 in single precision, SGD with momentum, ``--batch`` images a step: a program to record."""

import argparse

import torch
import torchvision


def main() -> None:
    """Trains on random images."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batch", type=int, default=512)
    options.add_argument("--steps", type=int, default=3)
    given = options.parse_args()
    model = torchvision.models.resnet50().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(given.steps):
        images = torch.randn(given.batch, 3, 224, 224).cuda()
        labels = torch.randint(1000, (given.batch,)).cuda()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
