"""Keeps optimizer state in host memory between steps.

A step then takes one parameter after the other, and only the state of that parameter is on the device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from memdiag.fix.base import Proposal, Refusal
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit, TemporaryCalls
from memdiag.fix.owners import optimizer_refusals
from memdiag.fix.structure import is_sharded, rows_with
from memdiag.offload.passes import OPTIMIZER
from memdiag.offload.settings import OffloadSettings
from memdiag.text import phrase
from memdiag.trace.schema import CATEGORIES, LIFETIMES
from memdiag.trace.table import Array
from memdiag.units import MIB

NAME = "offload-optimizer"
_STATE, _PARAMETER = CATEGORIES.index("optimizer_state"), CATEGORIES.index("parameter")
_BRIEF = [LIFETIMES.index(name) for name in ("temporary", "within_phase")]
_KINDS = ("adam", "adamw", "nadam", "radam", "adamax", "rmsprop", "sgd", "adadelta")
_FILES = tuple(f"/torch/optim/{name}.py" for name in _KINDS)
_SMALLEST = MIB
_FLOOR = 64 * MIB
_COPIES = 2  # most temporary tensors of a step for one parameter
_LITTLE = 0.1  # temporary tensors for each parameter that do not count
_S = 1_000_000  # microseconds
_BY_HAND = (
    "optimizers = [torch.optim.AdamW([parameter]) for parameter in model.parameters()]  # for each: its state to the "
    "device, step(), and its state to the host again"
)


def propose(case: FixCase) -> Iterable[Proposal | Refusal]:
    """Yields the remedy if optimizers of torch.optim have large states."""
    if case.trace.backend == "cpu" or case.subject.workload.captured or is_sharded(case):
        return
    tensors, frames = case.device.tensors, case.trace.stacks.frames
    state = np.flatnonzero((tensors.category == _STATE) & (tensors.requested_bytes >= _SMALLEST))
    refusals, state = optimizer_refusals(case, NAME, state)
    yield from refusals
    inside = [frame.filename.replace("\\", "/").endswith(_FILES) for frame in frames]
    state = np.intersect1d(state, rows_with(case, inside, OPTIMIZER))
    moved = int(tensors.block_bytes[state].sum())
    if moved < _FLOOR:
        return
    edit = _edit(case, state, np.intersect1d(_temporaries(case), rows_with(case, inside, OPTIMIZER)))
    lines, link = case.callers(state), OffloadSettings().link
    yield Proposal(
        NAME,
        phrase("fix.offload-optimizer"),
        tuple(frame.label for frame in lines[-1:]),
        edit,
        _BY_HAND,
        phrase("fix.offload-optimizer.caveat"),
        None,
        "offload_optimizer",
        {"smallest_bytes": _SMALLEST},
        moved_bytes=moved,
        copy_us=int(moved / link.away * _S + moved / link.back * _S),
    )


def _temporaries(case: FixCase) -> Array:
    """Returns the temporary tensors of optimizer steps, as rows in Tensors."""
    tensors = case.device.tensors
    is_brief = np.isin(tensors.lifetime, _BRIEF) & (tensors.requested_bytes >= _SMALLEST)
    rows: Array = np.flatnonzero(is_brief & (tensors.phase_alloc == OPTIMIZER))
    return rows


def _edit(case: FixCase, state: Array, temporaries: Array) -> Edit:
    """Returns the change: each step has the state of one parameter after the other, with its temporary tensors."""
    tensors, passes = case.device.tensors, case.passes
    parameters = tensors.requested_bytes[(tensors.category == _PARAMETER)]
    num_parameters = int(np.count_nonzero(parameters >= _SMALLEST))
    per_parameter = max(round(len(state) / max(num_parameters, 1)), 1)
    copies = 0
    if not set(temporaries.tolist()) <= case.given.edit.dropped or case.trace.backend != "cuda":  # not fused
        num_steps = max(len(np.unique(passes.at(tensors.alloc_at[temporaries]))), 1)
        share = tensors.block_bytes[temporaries].sum() * per_parameter / num_steps / tensors.block_bytes[state].sum()
        copies = min(max(math.ceil(share - _LITTLE), 1), _COPIES)
    order = state[np.argsort(tensors.alloc_at[state], kind="stable")]
    turn: list[tuple[int, int]] = []
    for first in range(0, len(order), per_parameter):
        sizes = tensors.requested_bytes[order[first : first + per_parameter]].tolist()
        sizes += [max(sizes)] * copies
        turn += [(number, size) for number, size in enumerate(sizes)]
        turn += [(number, 0) for number in [*range(len(sizes) - copies, len(sizes)), *range(len(sizes) - copies)]]
    begins = passes.begin[passes.phase == OPTIMIZER].tolist()
    scripts = tuple(TemporaryCalls(begin, tuple(turn), int(state[0])) for begin in begins)
    return Edit(frozenset([*state.tolist(), *temporaries.tolist()]), scripts=scripts)
