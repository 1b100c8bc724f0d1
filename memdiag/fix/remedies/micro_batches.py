"""Runs the model on parts of the batch, one after the other, so that only one part has activations at a time.

Each part is recomputed in backward, and gradients accumulate over the parts: gradient accumulation within one step, so
the loop of the program, its optimizer and its learning rate stay as they are. The prediction assumes that activations
have sizes proportional to the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.fix.base import Proposal
from memdiag.fix.blocks import model_calls, output_of, recompute_us, training_passes
from memdiag.fix.by_hand import switch_of_batch
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit, Made, Repeat, union
from memdiag.fix.structure import barriers, few
from memdiag.text import phrase
from memdiag.trace.recorded import module_at
from memdiag.trace.schema import ALLOC
from memdiag.trace.table import Array
from memdiag.units import MIB

NAME = "micro-batches"
_COUNTS = (2, 4, 8, 16)
_FLOOR = 64 * MIB


@dataclass(frozen=True)
class _ModelCall:
    """A call of a model in training: its first event, the event after the last, and its backward."""

    begin: int
    end: int
    backward: int
    backward_end: int


def propose(case: FixCase) -> Iterable[Proposal]:
    """Yields the remedy with growing numbers of parts, if activations of the model wait for backward."""
    if switch_of_batch(case) or any(barriers(case, NAME)):
        return
    calls = list(_calls(case))
    rows = np.concatenate([_saved(case, call) for call in calls]) if calls else np.empty(0, np.int64)
    if int(case.device.tensors.block_bytes[rows].sum()) < _FLOOR:
        return
    made = case.device.tensors.alloc_at
    inside = [np.flatnonzero((made >= call.begin) & (made < call.end)) for call in calls]
    total = sum(int(case.device.tensors.block_bytes[each].sum()) for each in inside)
    steps = len({int(case.device.events.step[call.begin]) for call in calls})
    lines = case.callers(rows, of_models=True)
    for count in _COUNTS:
        yield Proposal(
            NAME,
            phrase("fix.micro-batches", count=count),
            few([frame.label for frame in lines[-1:]]),
            union([_edit(case, call, count) for call in calls]),
            f"(loss / {count}).backward()  # for each of {count} parts of the batch; then optimizer.step() once",
            phrase("fix.micro-batches.caveat"),
            None,
            "micro_batches",
            {"count": count},
            is_safe=False,
            forward_share=1.0,
            recompute_us=recompute_us(total, steps) + count,  # those with fewer parts first
        )


def _calls(case: FixCase) -> Iterator[_ModelCall]:
    """Yields the calls of models that keep tensors for backward."""
    recorded = case.trace.recorded
    if recorded is None:
        return
    name = module_at(recorded, case.device)
    is_loss = np.array(["." not in each and "loss" in each.lower() for each in recorded.names] + [False], bool)
    is_running = (name >= 0) & ~is_loss[name]
    for begin, end, backward, backward_end in training_passes(case):
        for first, last, _ in model_calls(is_running, begin, end):
            call = _ModelCall(first, last, backward, backward_end)
            if is_running[first:last].any() and len(_saved(case, call)):
                yield call


def _saved(case: FixCase, call: _ModelCall) -> Array:
    """Returns the tensors of a call that wait for backward, as rows in Tensors."""
    tensors = case.device.tensors
    made = (tensors.alloc_at >= call.begin) & (tensors.alloc_at < call.end)
    return np.flatnonzero(
        made & (tensors.free_requested_at >= call.backward) & (tensors.free_requested_at < call.backward_end)
    )


def _edit(case: FixCase, call: _ModelCall, count: int) -> Edit:
    """Returns the change of one call: the last part of the batch, with the gradients of all others already made."""
    tensors = case.device.tensors
    alloc, freed, size = tensors.alloc_at, tensors.free_requested_at, tensors.requested_bytes
    made = np.flatnonzero((alloc >= call.begin) & (alloc < call.end))
    casts = case.casts.made_in(call.begin, call.end)
    fixed = np.union1d(casts, made[freed[made] >= call.backward_end])
    result = output_of(case, call.begin, call.end)
    returned = made[(case.released[made] > call.end) & (case.released[made] < case.device.num_events)]
    outputs = np.union1d(returned[freed[returned] >= call.end], [result] if result >= 0 else [])
    inner = np.setdiff1d(_saved(case, call), np.union1d(outputs, fixed))
    parts = np.setdiff1d(made, np.union1d(outputs, fixed))
    later = np.flatnonzero((alloc >= call.end) & (alloc < call.backward) & (freed >= call.backward))
    reached = int(freed[later[freed[later] < call.backward_end]].max(initial=call.backward))
    allocs = np.flatnonzero(case.device.events.action[reached : call.backward_end] == ALLOC)
    start = reached + int(allocs[0]) if len(allocs) else reached
    behind = np.flatnonzero((alloc >= start) & (alloc < call.backward_end))
    of_weights = np.isin(size[behind], np.concatenate(case.gradient_sizes))
    gradients = behind[of_weights & (freed[behind] >= call.backward_end)]
    scaled = [*parts.tolist(), *behind[~of_weights].tolist()]
    pieces = [Made(call.end, call.end + 1, int(size[row]), row) for row in outputs.tolist()]
    # autograd saves no copies by autocast any more, and recomputing each part makes its own
    released = case.casts.freed_without_autograd(case.device, casts, call.backward)
    saved = np.union1d(inner, casts[freed[casts] >= call.backward])
    earlier = dict(zip(inner.tolist(), np.minimum(case.released[inner], call.end).tolist(), strict=True))
    return Edit(
        dropped=frozenset(gradients.tolist()),
        freed=earlier | {row: min(released, int(freed[row])) for row in casts.tolist()},
        resized={row: max(int(size[row]) // count, 1) for row in scaled},
        repeats=(Repeat(call.begin, call.end, start, {row: int(freed[row]) for row in saved.tolist()}),)
        if len(inner)
        else (),
        added=tuple((int(alloc[row]), int(size[row]), row) for row in gradients.tolist()),
        made=(*pieces, *(Made(start, int(freed[row]), int(size[row]), row) for row in gradients.tolist())),
    )
