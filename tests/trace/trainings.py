"""The training of tests/training.py, and what tests of several modules ask of its traces."""

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
    """Rows of the tensors that the trace shows the birth of, in order of birth."""
    rows = np.flatnonzero(device.tensors.alloc_at >= 0)
    return rows[np.argsort(device.tensors.alloc_at[rows])]


def names(table, index):
    return [table[i] for i in index]
