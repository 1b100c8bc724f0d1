"""Recomputes the activations of some blocks in backward (activation checkpointing).

The blocks are the numbered parts of the model ("layers.3"). Their cost is the share of the forward pass that runs
again, estimated from the bytes that they allocate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.fix.base import Proposal
from memdiag.fix.case import Case
from memdiag.fix.edit import Edit, Repeat, union
from memdiag.offload.passes import BACKWARD, FORWARD
from memdiag.text import phrase
from memdiag.trace.schema import ALLOC

NAME = "checkpoint"
_SHOWN = 4
_NEAR = 8  # events


@dataclass(frozen=True)
class Block:
    """A numbered part of the model.

    Attributes:
        path: Its path in the model.
        edit: The change if its activations are recomputed.
        saved_bytes: Bytes that it no longer keeps for backward, in the largest pass.
        cost: Bytes that are allocated again in all passes.
    """

    path: str
    edit: Edit
    saved_bytes: int
    cost: int


def propose(case: Case) -> Iterable[Proposal]:
    """Yields sets of blocks, from one block to all of them."""
    blocks = find_blocks(case)
    blocks.sort(key=lambda block: -(block.saved_bytes / max(block.cost, 1)))  # stable: earlier blocks first
    total = _forward_bytes(case)
    for number in range(1, len(blocks) + 1):
        chosen = blocks[:number]
        paths = [block.path for block in chosen]
        yield Proposal(
            NAME,
            phrase("fix.checkpoint", count=number, total=len(blocks)),
            (*paths[:_SHOWN], *(("…",) if number > _SHOWN else ())),
            union([block.edit for block in chosen]),
            "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
            phrase("fix.checkpoint.caveat"),
            "checkpoint_modules",
            {"modules": paths},
            forward_share=sum(block.cost for block in chosen) / max(total, 1),
        )


def find_blocks(case: Case) -> list[Block]:
    """Returns the numbered parts that keep activations for backward, in the order of the model's forward."""
    found = [block for path in case.modules.blocks if (block := _block(case, path)) is not None]
    return sorted(found, key=lambda block: block.edit.repeats[0].begin)


def _pairs(case: Case) -> Iterator[tuple[int, int, int, int]]:
    """Yields begin and end of each forward pass, and of the backward pass that follows it."""
    passes = case.passes
    for i in np.flatnonzero((passes.phase[:-1] == FORWARD) & (passes.phase[1:] == BACKWARD)).tolist():
        yield int(passes.begin[i]), int(passes.end[i]), int(passes.begin[i + 1]), int(passes.end[i + 1])


def _block(case: Case, path: str) -> Block | None:
    if path not in case.modules.spans:
        return None
    tensors = case.device.tensors
    repeats: list[Repeat] = []
    freed: dict[int, int] = {}
    saved_bytes = cost = 0
    allocs = np.flatnonzero(case.device.events.action == ALLOC)
    for begin, end, backward, backward_end in _calls(case, path):
        kept = (tensors.free_requested_at >= backward) & (tensors.free_requested_at < backward_end)
        later = np.flatnonzero(kept & (tensors.alloc_at >= end) & (tensors.alloc_at < backward))
        mine = np.flatnonzero(kept & (tensors.alloc_at >= begin) & (tensors.alloc_at < end))
        reached = int(tensors.free_requested_at[later].max(initial=backward))
        # What a later part saved of it is its output, which remains. It is freed before the block's own tensors, or
        # by the last operator of that part.
        inner = mine[tensors.free_requested_at[mine] > reached]
        if len(inner) == len(mine):
            inner = inner[tensors.alloc_at[inner] < tensors.alloc_at[inner].max(initial=-1)]
        if not len(inner):
            continue
        again = {row: _freed_earlier(case, row) for row in inner.tolist()}
        # frees that follow belong to the operator before; the next one that allocates needs the block
        following = allocs[min(int(np.searchsorted(allocs, reached)), len(allocs) - 1)]
        repeats.append(Repeat(begin, end, int(following), again))
        freed |= dict.fromkeys(inner.tolist(), end)
        saved_bytes = max(saved_bytes, int(tensors.block_bytes[inner].sum()))
        made = (tensors.alloc_at >= begin) & (tensors.alloc_at < end)
        cost += int(tensors.block_bytes[made].sum())
    return Block(path, Edit(freed=freed, repeats=tuple(repeats)), saved_bytes, cost) if repeats else None


def _freed_earlier(case: Case, row: int) -> int:
    """Returns the event at which a recomputed tensor is freed.

    Autograd frees a saved tensor after the operator, and a recomputed one within it: before the temporary tensor of the
    gradient of a bias, which it allocates last.
    """
    tensors, events = case.device.tensors, case.device.events
    freed = int(tensors.free_requested_at[row])
    last = int(events.tensor[freed - 1])
    if last < 0 or last == row or events.action[freed - 1] == ALLOC or tensors.alloc_at[last] < freed - _NEAR:
        return freed
    return int(tensors.alloc_at[last])


def _calls(case: Case, path: str) -> Iterator[tuple[int, int, int, int]]:
    """Yields begin and end of each call of a block in forward, and of the backward pass that follows it."""
    spans = case.modules.spans[path]
    is_first = np.append(True, spans[1:, 0] > np.maximum.accumulate(spans[:, 1])[:-1])
    begins, ends = spans[is_first, 0], np.append(spans[:, 1][:-1][is_first[1:]], spans[-1, 1])
    for forward, forward_end, backward, backward_end in _pairs(case):
        for call in np.flatnonzero((begins >= forward) & (begins < forward_end)).tolist():
            yield int(begins[call]), min(int(ends[call]), forward_end), backward, backward_end


def _forward_bytes(case: Case) -> int:
    tensors = case.device.tensors
    return sum(
        int(tensors.block_bytes[(tensors.alloc_at >= begin) & (tensors.alloc_at < end)].sum())
        for begin, end, _, _ in _pairs(case)
    )
