"""Computes cross entropy in parts (finding MD105)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memdiag.fix.base import Proposal, Refusal
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit, TemporaryCalls
from memdiag.fix.owners import loss_refusals, of_cross_entropy
from memdiag.fix.structure import few
from memdiag.offload.passes import BACKWARD
from memdiag.text import phrase
from memdiag.trace.table import Array
from memdiag.units import MIB

NAME = "chunked-loss"
_FLOOR = 64 * MIB
_PART = 32 * MIB
_TEMPORARIES = 3  # tensors of a part: logarithms of the softmax, and two gradients
_GRADIENTS = 2  # gradients of the logarithms and of the logits, without those of copies
_BY_HAND = (
    "loss = sum(checkpoint(part_loss, h, y, use_reentrant=False) for h, y in zip(hidden.chunk(16), labels.chunk(16)))"
    '  # part_loss: cross_entropy(head(h), y, reduction="sum") / len(labels)'
)


def propose(case: FixCase) -> Iterable[Proposal | Refusal]:
    """Yields the remedy if ``torch.nn.functional.cross_entropy`` makes large tensors."""
    tensors, stacks = case.device.tensors, case.trace.stacks
    yield from loss_refusals(case, NAME, _FLOOR)
    of_loss = of_cross_entropy(case)
    forward = np.flatnonzero(of_loss & (tensors.requested_bytes >= _FLOOR) & (tensors.alloc_at >= 0))
    if not len(forward):
        return
    edit = Edit()
    for begin, end in _backwards(case):
        is_saved = (tensors.alloc_at[forward] < begin) & (tensors.free_requested_at[forward] >= begin)
        saved = forward[is_saved & (tensors.free_requested_at[forward] <= end)]
        if len(saved):
            edit |= _edit(case, forward, int(saved[-1]), begin, end)
    edit |= _without_backward(case, forward)
    stacks_of = np.unique(tensors.stack[forward]).tolist()
    lines = [user for number in stacks_of for user in [frame for frame in stacks[number] if frame.is_user][:1]]
    yield Proposal(
        NAME,
        phrase("fix.chunked-loss"),
        few(list(dict.fromkeys(frame.label for frame in lines))),
        edit,
        _BY_HAND,
        phrase("fix.chunked-loss.caveat"),
        phrase("fix.chunked-loss.cost"),
        "chunked_loss",
        {"part_bytes": _PART},
    )


def _edit(case: FixCase, forward: Array, saved: int, begin: int, end: int) -> Edit:
    """Returns the change of one loss.

    In the recording, the logarithms of the softmax are saved, and backward makes two gradients of the same size,
    those of the logarithms and of the logits. With the remedy, forward makes the gradient instead of the logarithms.

    Args:
        case: The recording.
        forward: Large tensors that losses allocate in forward.
        saved: The logarithms of the softmax.
        begin, end: The backward pass.
    """
    tensors = case.device.tensors
    size = int(tensors.requested_bytes[saved])
    at = int(tensors.alloc_at[saved])
    others = forward[(tensors.alloc_at[forward] < begin) & (tensors.free_requested_at[forward] > at)]
    requested = tensors.requested_bytes[others]
    # copies of the logits, in float32 or in their own type, which autocast makes
    copies = others[(others != saved) & ((requested == size) | (requested == size // 2))]
    sizes = [size, size // 2] if len(copies) else [size]
    within = (tensors.alloc_at >= begin) & (tensors.alloc_at < end)
    same = np.flatnonzero(within & np.isin(tensors.requested_bytes, sizes))
    gradients = same[np.argsort(tensors.alloc_at[same])][: _GRADIENTS + len(copies)]
    until = int(tensors.free_requested_at[gradients].max(initial=tensors.free_requested_at[saved]))
    resized = {saved: size // 2} if len(copies) else {}  # the gradient has the type of the logits
    logits = resized.get(saved, size)
    script = _part(case, [saved, *copies.tolist(), *gradients.tolist()], at + 1, _PART / logits)
    dropped = frozenset([*gradients.tolist(), *copies.tolist()])
    return Edit(dropped, {saved: min(until, end)}, resized, scripts=(script,) * -(-logits // _PART))


def _part(case: FixCase, rows: list[int], at: int, share: float) -> TemporaryCalls:
    """Returns the calls of one part of a loss: those of the whole loss, in forward and then in backward.

    Args:
        case: The recording.
        rows: The large tensors of the whole loss, as rows in Tensors.
        at: Event before which the parts are computed.
        share: Share of the rows of the loss in one part.
    """
    tensors = case.device.tensors
    steps = [(int(tensors.alloc_at[row]), row, int(tensors.requested_bytes[row] * share)) for row in rows]
    steps += [(int(tensors.free_requested_at[row]), row, 0) for row in rows]
    return TemporaryCalls(at, tuple((row, size) for _, row, size in sorted(steps)), rows[0])


def _without_backward(case: FixCase, forward: Array) -> Edit:
    """Returns the change of tensors that are not kept for backward, as all in an evaluation."""
    tensors = case.device.tensors
    begins = np.append([begin for begin, _ in _backwards(case)], case.device.num_events)
    following = begins[np.searchsorted(begins[:-1], tensors.alloc_at[forward], side="right")]
    brief = forward[tensors.free_requested_at[forward] < following].tolist()
    added = tuple((int(tensors.alloc_at[row]) + 1, _TEMPORARIES * _PART, row) for row in brief)
    return Edit(frozenset(brief), added=added)


def _backwards(case: FixCase) -> Iterable[tuple[int, int]]:
    chosen = case.passes.phase == BACKWARD
    return zip(case.passes.begin[chosen].tolist(), case.passes.end[chosen].tolist(), strict=True)
