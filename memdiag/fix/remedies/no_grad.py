"""Runs forward passes without autograd whose graphs no backward uses (finding MD106)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memdiag.analyzers.kept_passes import all_such, find_passes, in_losses
from memdiag.fix.base import Proposal
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit
from memdiag.text import phrase
from memdiag.trace.schema import ALLOC, PHASES
from memdiag.trace.table import Array

NAME = "no-grad"
_FORWARD, _BACKWARD = PHASES.index("forward"), PHASES.index("backward")


def propose(case: FixCase) -> Iterable[Proposal]:
    """Yields the remedy if forward passes are retained without a backward."""
    found = find_passes(case.view)
    if found is None or found.follows:  # a backward needs the graphs
        return
    rows = _without_backward(case, found.rows)
    is_model = (case.device.tensors.phase_alloc == _FORWARD) & ~in_losses(case.view)  # the loss follows
    lines = case.callers(rows[is_model[rows]], of_models=True)
    if not lines:
        return
    yield Proposal(
        NAME,
        phrase("fix.no-grad"),
        (lines[-1].label,),
        Edit(freed=_freed_at_once(case, all_such(case.view, rows))),
        "with torch.no_grad():",
        phrase("fix.no-grad.caveat"),
        phrase("fix.no-grad.cost"),
        "no_grad_at",
        {"calls": [[[frame.filename, frame.line] for frame in lines]]},
    )


def _freed_at_once(case: FixCase, rows: Array) -> dict[int, int]:
    """Returns when tensors are freed that only autograd keeps: when the operator that reads them has its output."""
    tensors, events = case.device.tensors, case.device.events
    allocs = np.append(np.flatnonzero(events.action == ALLOC), case.device.num_events)
    following = allocs[np.minimum(np.searchsorted(allocs, tensors.alloc_at[rows], side="right"), len(allocs) - 1)] + 1
    return dict(zip(rows.tolist(), np.minimum(following, tensors.free_requested_at[rows]).tolist(), strict=True))


def _without_backward(case: FixCase, rows: Array) -> Array:
    """Returns the tensors from stacks of which no backward freed a tensor: the running step is among the others."""
    tensors = case.device.tensors
    used = np.unique(tensors.stack[tensors.phase_free == _BACKWARD])
    return rows[~np.isin(tensors.stack[rows], used)]
