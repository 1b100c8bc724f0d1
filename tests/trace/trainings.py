"""The training of tests/training.py, and what tests of several modules ask of its traces."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np

_program = runpy.run_path(str(Path(__file__).parents[1] / "training.py"))
Training, MIB = _program["Training"], _program["MIB"]
# Call stacks of the training. Autograd's thread has none.
BACKWARD, KEEP, LOSS, NO_FRAMES = (_program[name] for name in ("BACKWARD", "KEEP", "LOSS", "SILENT"))


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
