"""Repeats equal passes for a while, then others: each line allocates sizes of its own. repeats.py WAY"""

import sys
import time

import torch

torch.set_num_threads(1)
LINES = {}  # by number of elements: the line that allocates them


def made(size):
    LINES[size] = sys._getframe(1).f_lineno
    return torch.ones(size)


class Layer(torch.nn.Module):
    def forward(self, kind):
        short = made(1_000 + kind)
        return made(2_000 + kind), short


def trained(seconds):
    layer, ends = Layer(), time.monotonic() + seconds
    while time.monotonic() < ends:
        layer(0)
        rest = made(3_000)
        del rest
        time.sleep(0.001)
    layer(1)  # another place of the program
    made(4_000)


def read():
    """Makes many calls and no tensors, as a program that parses a file does."""
    ends = time.thread_time() + 1.6
    while time.thread_time() < ends:
        len(str(1).strip())
    trained(0.1)


if __name__ == "__main__":
    if sys.argv[1] == "trained":
        trained(1.2)
    else:
        read()
    print(LINES)
