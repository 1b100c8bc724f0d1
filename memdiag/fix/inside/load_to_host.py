"""Loads checkpoints to host memory, whatever device the program names."""

import functools

import torch


def load_to_host():
    """Makes ``torch.load`` load to host memory; ``load_state_dict`` copies from there into the model."""
    original = torch.load

    @functools.wraps(original)
    def load(f, map_location=None, **kwargs):
        return original(f, map_location="cpu", **kwargs)

    torch.load = load
