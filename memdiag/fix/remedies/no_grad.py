"""Runs forward passes without autograd whose graphs no backward uses (finding MD106)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memdiag.analyzers.kept_passes import all_such, find_passes
from memdiag.fix.base import Proposal
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit
from memdiag.text import phrase
from memdiag.trace.schema import PHASES
from memdiag.trace.table import Array

NAME = "no-grad"
_BACKWARD = PHASES.index("backward")


def propose(case: FixCase) -> Iterable[Proposal]:
    """Yields the remedy if forward passes are retained without a backward."""
    found = find_passes(case.view)
    if found is None:
        return
    rows = _without_backward(case, found.rows)
    lines = case.callers(rows)
    if not lines:
        return
    yield Proposal(
        NAME,
        phrase("fix.no-grad"),
        (lines[-1].label,),
        Edit(dropped=frozenset(all_such(case.view, rows).tolist())),
        "with torch.no_grad():",
        phrase("fix.no-grad.caveat"),
        "no_grad_at",
        {"calls": [[[frame.filename, frame.line] for frame in lines]]},
    )


def _without_backward(case: FixCase, rows: Array) -> Array:
    """Returns the tensors from stacks of which no backward freed a tensor: the running step is among the others."""
    tensors = case.device.tensors
    used = np.unique(tensors.stack[tensors.phase_free == _BACKWARD])
    return rows[~np.isin(tensors.stack[rows], used)]
