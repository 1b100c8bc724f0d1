"""Computes cross entropy in the 16-bit type of the logits, without a copy of them in float32.

Programs call ``logits.float()`` before the loss, and autocast computes the negative log likelihood in float32. Both
make tensors of twice the size of the logits, in forward and in backward.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from memdiag.fix.base import Proposal, Refusal
from memdiag.fix.blocks import training_passes
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit
from memdiag.fix.owners import loss_refusals, of_cross_entropy
from memdiag.fix.structure import few
from memdiag.text import phrase
from memdiag.trace.stacks import Frame
from memdiag.trace.table import Array
from memdiag.units import MIB

NAME = "logits-dtype"
_FLOOR = 64 * MIB
_CAST = re.compile(r"\.(float|to|type)\(")
_ALIKE = 0.1  # share by which tensors of the loss differ in size, as without the last token of each text


@dataclass
class _Found:
    """What the losses of a recording do in float32."""

    edit: Edit = field(default_factory=Edit)
    lines: dict[Frame, None] = field(default_factory=dict)
    casts: dict[Frame, None] = field(default_factory=dict)


def propose(case: FixCase) -> Iterable[Proposal | Refusal]:
    """Yields the remedy if ``torch.nn.functional.cross_entropy`` computes large 16-bit logits in float32."""
    tensors, of_loss = case.device.tensors, of_cross_entropy(case)
    large = tensors.requested_bytes >= _FLOOR
    found = _Found()
    for begin, _, backward, backward_end in training_passes(case):
        made = large & (tensors.alloc_at >= begin) & (tensors.alloc_at < backward)
        rows = np.flatnonzero(made)
        _add(case, found, rows[np.argsort(tensors.alloc_at[rows])], of_loss, (backward, backward_end))
    if not found.lines:
        return
    yield from loss_refusals(case, NAME, _FLOOR)
    yield Proposal(
        NAME,
        phrase("fix.logits-dtype"),
        few([frame.label for frame in [*found.casts, *found.lines]]),
        found.edit,
        "loss = torch.nn.functional.cross_entropy(logits, labels)  # without logits.float(), and outside of autocast",
        phrase("fix.logits-dtype.caveat"),
        phrase("fix.logits-dtype.cost"),
        "logits_dtype",
        {"calls": [[[frame.filename, frame.line]] for frame in found.casts]},
        is_safe=False,
    )


def _add(case: FixCase, found: _Found, rows: Array, of_loss: Array, backward: tuple[int, int]) -> None:
    """Adds one loss.

    Args:
        case: The recording.
        found: What was found before.
        rows: Large tensors of the forward pass, in order.
        of_loss: Whether a loss allocates a tensor, one per row in Tensors.
        backward: Begin and end of the backward pass.
    """
    tensors, size = case.device.tensors, case.device.tensors.requested_bytes
    inside = rows[of_loss[rows] & (tensors.free_requested_at[rows] >= backward[0])]
    if not len(inside):
        return
    whole = int(size[inside].max())
    wide, narrow = _alike(size, whole), _alike(size, whole // 2)
    later = np.flatnonzero((tensors.alloc_at >= backward[0]) & (tensors.alloc_at < backward[1]) & (wide | narrow))
    later = later[np.argsort(tensors.alloc_at[later])]
    before = rows[~of_loss[rows] & wide[rows] & (tensors.alloc_at[rows] < tensors.alloc_at[inside[0]])]
    logits = rows[~of_loss[rows] & narrow[rows] & (tensors.alloc_at[rows] < tensors.alloc_at[inside[0]])]
    casts = [row for row in before.tolist() if len(logits) and _is_cast(case, row)][:1]
    if narrow[inside].any() and wide[inside].any():  # autocast
        dropped = [*inside[wide[inside]].tolist(), *later[wide[later]][: np.count_nonzero(wide[inside])].tolist()]
        found.edit |= Edit(frozenset(dropped))
    elif casts:
        taken = Edit(held={int(logits[-1]): int(tensors.free_requested_at[casts[0]])})
        found.edit |= taken | _without_cast(case, casts[0], np.concatenate([before, inside]), later[:3], wide)
        found.casts |= dict.fromkeys(case.trace.stacks[int(tensors.stack[casts[0]])][:1])
    else:
        return
    users = [frame for frame in case.trace.stacks[int(tensors.stack[inside[0]])] if frame.is_user]
    found.lines |= dict.fromkeys(users[:1])


def _without_cast(case: FixCase, cast: int, forward: Array, later: Array, wide: Array) -> Edit:
    """Returns the change of the other tensors of a loss whose logits the program copies to float32.

    Backward makes two gradients of the loss in float32, and a copy of the second in 16 bits, which takes its place.

    Args:
        case: The recording.
        cast: The copy, as a row in Tensors.
        forward: Tensors of forward in float32: the copy, copies of it, and those of the loss.
        later: The first three tensors of backward that are as large as logits, in order.
        wide: Whether a tensor has the size of logits in float32, one per row in Tensors.
    """
    tensors = case.device.tensors
    gradients, copies = later[wide[later]], later[~wide[later]]
    rows = [row for row in [*forward.tolist(), *gradients.tolist()] if row != cast]
    resized = {row: int(tensors.requested_bytes[row]) // 2 for row in rows}
    held: dict[int, int] = {}
    if len(copies) and len(gradients):
        until = int(tensors.free_requested_at[copies[0]])
        held = {int(gradients[-1]): until}
        held |= {row: until for row in forward[-1:].tolist() if row in case.given.edit.freed}  # computed in parts
    return Edit(frozenset([cast, *copies[:1].tolist()]), resized=resized, held=held)


def _alike(sizes: Array, size: int) -> Array:
    found: Array = np.abs(sizes - size) <= _ALIKE * size
    return found


def _is_cast(case: FixCase, row: int) -> bool:
    """Returns whether the line that allocates a tensor changes the type of another one."""
    stack = case.trace.stacks[int(case.device.tensors.stack[row])]
    innermost = next((frame for frame in stack if frame.is_python), None)
    return innermost is not None and bool(_CAST.search(linecache.getline(innermost.filename, innermost.line)))
