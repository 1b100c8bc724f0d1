"""Helpers for tests that use the simulated training of tests/training.py."""

from __future__ import annotations

import numpy as np

from tests.training import SILENT, Training

NO_FRAMES = SILENT  # the call stack of autograd's thread


def trained(steps=4, **options):
    program = Training()
    program.initialise()
    for _ in range(steps):
        program.step(**options)
    return program


def born(device):
    """Returns the rows of tensors that were allocated within the trace, in order of allocation."""
    rows = np.flatnonzero(device.tensors.alloc_at >= 0)
    return rows[np.argsort(device.tensors.alloc_at[rows])]


def names(table, index):
    return [table[i] for i in index]
