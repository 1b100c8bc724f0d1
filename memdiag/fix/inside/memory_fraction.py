"""Lets the process use the whole device, whatever memory fraction the program sets."""

import functools

import torch


def memory_fraction():
    """Makes ``set_per_process_memory_fraction`` of CUDA and NPU devices set 1.0."""
    for backend in (torch.cuda, getattr(torch, "npu", None)):
        original = getattr(backend, "set_per_process_memory_fraction", None)
        if original is None:
            continue

        @functools.wraps(original)
        def set_per_process_memory_fraction(fraction, device=None, original=original):
            original(1.0, device)

        backend.set_per_process_memory_fraction = set_per_process_memory_fraction
        backend.memory.set_per_process_memory_fraction = set_per_process_memory_fraction
