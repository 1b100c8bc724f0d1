"""Keeps gradients only in the buckets of DistributedDataParallel, without a second copy."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memdiag.fix.base import Proposal
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit
from memdiag.fix.structure import few
from memdiag.offload.passes import BACKWARD
from memdiag.text import phrase
from memdiag.trace.schema import ALLOC, CATEGORIES
from memdiag.trace.table import Array
from memdiag.units import MIB

NAME = "gradient-bucket-view"
_GRADIENT = CATEGORIES.index("gradient")
_FLOOR = 32 * MIB
_WRAPPER = "/nn/parallel/distributed.py"


def propose(case: FixCase) -> Iterable[Proposal]:
    """Yields the remedy if DistributedDataParallel runs the model, and gradients outlive their reduction."""
    frames = case.trace.stacks.frames
    wrapped = [frame for frame in frames if frame.filename.replace("\\", "/").endswith(_WRAPPER)]
    if not any(frame.name == "forward" for frame in wrapped):
        return
    tensors = case.device.tensors
    rows = np.flatnonzero(
        (tensors.category == _GRADIENT) & (tensors.phase_alloc == BACKWARD) & (tensors.phase_free != BACKWARD)
    )
    if int(tensors.block_bytes[rows].sum()) < _FLOOR:
        return
    yield Proposal(
        NAME,
        phrase("fix.gradient-bucket-view"),
        few(case.lines_calling("DistributedDataParallel")),
        Edit(freed=_reduced(case, rows)),
        "DistributedDataParallel(model, gradient_as_bucket_view=True)",
        phrase("fix.gradient-bucket-view.caveat"),
        phrase("fix.gradient-bucket-view.cost"),
        "gradient_bucket_view",
    )


def _reduced(case: FixCase, rows: Array) -> dict[int, int]:
    """Returns when each gradient is freed: DDP copies it to its bucket when backward has made it."""
    events = case.device.events
    allocs = np.append(np.flatnonzero(events.action == ALLOC), case.device.num_events)
    at = case.device.tensors.alloc_at[rows]
    following = allocs[np.minimum(np.searchsorted(allocs, at, side="right"), len(allocs) - 1)]
    return dict(zip(rows.tolist(), following.tolist(), strict=True))
