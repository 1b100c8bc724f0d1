"""Takes optimizer steps without temporary copies of all parameters (finding MD104)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memdiag.analyzers.support.optimizers import has_fused_kernel, optimizer_of
from memdiag.fix.base import Proposal, Refusal
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit
from memdiag.fix.owners import optimizer_refusals
from memdiag.offload.passes import OPTIMIZER
from memdiag.text import phrase
from memdiag.trace.schema import CATEGORIES, LIFETIMES
from memdiag.units import MIB

NAME = "lean-optimizer"
_BRIEF = [LIFETIMES.index(name) for name in ("temporary", "within_phase")]
_PARAMETER = CATEGORIES.index("parameter")
_FLOOR = 64 * MIB
_COPIES = 2  # temporary tensors that a step of Adam has for one parameter, without foreach and fused


def propose(case: FixCase) -> Iterable[Proposal | Refusal]:
    """Yields the remedy if the temporary tensors of a step are large: fused on CUDA, else one by one."""
    tensors, passes = case.device.tensors, case.passes
    rows = np.flatnonzero(np.isin(tensors.lifetime, _BRIEF) & (tensors.phase_alloc == OPTIMIZER))
    if int(tensors.block_bytes[rows].sum()) < _FLOOR:
        return
    refusals, rows = optimizer_refusals(case, NAME, rows)
    yield from refusals
    if int(tensors.block_bytes[rows].sum()) < _FLOOR:
        return
    dropped = frozenset(rows.tolist())
    lines = case.callers(rows)
    where = tuple(frame.label for frame in lines[-1:])
    name = optimizer_of(case.trace, tensors.stack[rows]) or "AdamW"
    if case.trace.backend == "cuda" and has_fused_kernel(name):
        yield Proposal(
            NAME,
            phrase("fix.lean-optimizer.fused"),
            where,
            Edit(dropped=dropped),
            f"torch.optim.{name}(…, fused=True)",
            phrase("fix.lean-optimizer.fused.caveat"),
            phrase("fix.lean-optimizer.fused.cost"),
            "lean_optimizer",
            {"kind": "fused"},
        )
        return
    parameters = np.flatnonzero(tensors.category == _PARAMETER)
    largest = int(tensors.requested_bytes[parameters].max(initial=0))
    begins = passes.begin[passes.phase == OPTIMIZER].tolist()
    added = tuple((at, _COPIES * largest, int(rows[0])) for at in begins)
    yield Proposal(
        NAME,
        phrase("fix.lean-optimizer"),
        where,
        Edit(dropped=dropped, added=added),
        f"torch.optim.{name}(…, foreach=False)",
        phrase("fix.lean-optimizer.caveat"),
        phrase("fix.lean-optimizer.cost"),
        "lean_optimizer",
        {"kind": "one_by_one"},
    )
