"""A program whose DataLoader workers grow, and which copies its whole state before it saves a checkpoint."""

from __future__ import annotations

import sys
import time

import torch

MIB = 1 << 20
STATE: dict[str, torch.Tensor] = {}


class Growing(torch.utils.data.Dataset):
    """A cache in each worker grows by 25 MiB in a second, however few samples a busy machine reads in that time."""

    def __init__(self) -> None:
        self.cache: list[bytearray] = []
        self.start = time.monotonic()

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        while len(self.cache) < 25 * (time.monotonic() - self.start):
            self.cache.append(bytearray(b"x" * MIB))
        return torch.zeros(8)


def train(seconds: float) -> None:
    """Runs steps of a small model for some seconds after the first batch, about 25 in each."""
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = torch.utils.data.DataLoader(Growing(), batch_size=2, num_workers=2)
    end = 0.0
    for batch in loader:
        end = end or time.monotonic() + seconds
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.04)
        if time.monotonic() > end:
            return


def save(path: str, megabytes: int) -> None:
    """Saves a state that is copied into one buffer first, as a serializer in memory does."""
    STATE["weights"] = torch.ones(megabytes * MIB // 4)
    time.sleep(1.2)
    copies = [tensor.clone() for tensor in STATE.values() for _ in range(2)]
    torch.save({"copies": copies}, path)
    del copies
    time.sleep(1.2)


if __name__ == "__main__":
    train(float(sys.argv[1]))
    save(sys.argv[2], int(sys.argv[3]))
