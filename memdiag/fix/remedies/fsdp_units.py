"""Shards each block as a separate unit, instead of the whole model as one unit (FSDP2, finding MD129).

With one unit, the weights of the whole model are gathered at once. With a unit for each block, forward and backward
gather the weights of a block while the block runs, and backward gathers those of the next block in advance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.fix.base import Proposal
from memdiag.fix.blocks import called_in
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit, Made, union
from memdiag.fix.structure import few
from memdiag.offload.passes import BACKWARD, FORWARD
from memdiag.text import phrase
from memdiag.trace.schema import CATEGORIES
from memdiag.trace.table import Array
from memdiag.units import MIB

NAME = "fsdp-units"
_PARAMETER = CATEGORIES.index("parameter")
_OUTPUTS = ("init_all_gather_outputs", "alloc_all_gather_outputs")  # of FSDPParam: the first time, and later
_FLOOR = 64 * MIB
_SHARE = 0.5  # of the gathered bytes that belong to blocks
_EVEN = 1.05  # largest ratio between the shares of two parameters that a shard has


@dataclass(frozen=True)
class Step:
    """One training step of a model that is one unit.

    Attributes:
        flat: The buffer of the all-gather, a row in Tensors.
        weights: The gathered weights in the order of the parameters, as rows.
        reduced, shard: The buffer of the reduce-scatter, and the reduced gradients, as rows.
        begin, backward, end: First event of forward and of backward, and the event after backward.
    """

    flat: int
    weights: Array
    reduced: int
    shard: int
    begin: int
    backward: int
    end: int


@dataclass(frozen=True)
class BlockRun:
    """When a block runs in one step.

    Attributes:
        path: Its path in the model.
        begin, end: Events of its forward, half open.
        backward, backward_end: Events of its backward, half open.
        share: Its share of the gathered bytes.
    """

    path: str
    begin: int
    end: int
    backward: int
    backward_end: int
    share: float


def propose(case: FixCase) -> Iterable[Proposal]:
    """Yields the remedy if each gather of FSDP2 has the weights of all blocks."""
    steps, paths = list(_steps(case)), _paths(case)
    blocks = [_blocks(case, step, paths) for step in steps]
    if not steps or any(len(found) < 2 or sum(one.share for one in found) < _SHARE for found in blocks):
        return
    chosen = [one.path for one in blocks[0]]
    yield Proposal(
        NAME,
        phrase("fix.fsdp-units", count=len(chosen)),
        (*few(chosen), *(frame.label for frame in case.callers(np.array([step.flat for step in steps]))[-1:])),
        union([_edit(case, step, found, paths) for step, found in zip(steps, blocks, strict=True)]),
        "for block in model.blocks: fully_shard(block)  # then fully_shard(model)",
        phrase("fix.fsdp-units.caveat"),
        phrase("fix.fsdp-units.cost"),
        "fsdp_units",
        {"blocks": chosen},
    )


def _paths(case: FixCase) -> list[str]:
    """Returns the block of each parameter, in the order of their allocation; "": none."""
    tensors = case.device.tensors
    blocks = [path for path in case.modules.blocks if path in called_in(case, path)]  # FSDP refuses a ModuleList
    rows = np.flatnonzero((tensors.category == _PARAMETER) & (tensors.name >= 0))
    names = [case.trace.strings[number] for number in tensors.name[rows].tolist()]
    return [next((path for path in blocks if name.startswith(f"{path}.")), "") for name in names]


def _steps(case: FixCase) -> Iterator[Step]:
    tensors, passes = case.device.tensors, case.passes
    is_large = tensors.requested_bytes >= _FLOOR
    flats = np.flatnonzero(_made_in(case, "foreach_all_gather") & is_large)
    gathered = np.flatnonzero(_made_in(case, *_OUTPUTS))
    reductions = np.flatnonzero(_made_in(case, "foreach_reduce") & is_large)
    forwards = np.flatnonzero((passes.phase[:-1] == FORWARD) & (passes.phase[1:] == BACKWARD))
    for i in forwards.tolist():
        begin, backward, end = int(passes.begin[i]), int(passes.begin[i + 1]), int(passes.end[i + 1])
        flat = flats[_within(tensors.alloc_at[flats], begin, end)]
        weights = gathered[_within(tensors.alloc_at[gathered], begin, backward)]
        reduced = reductions[_within(tensors.alloc_at[reductions], backward, end)]
        if len(flat) != 1 or len(reduced) != 2 or not _is_whole(case, weights):
            return
        yield Step(int(flat[0]), weights, int(reduced[0]), int(reduced[1]), begin, backward, end)


def _made_in(case: FixCase, *functions: str) -> Array:
    stacks = case.trace.stacks
    named = np.array([frame.name in functions for frame in stacks.frames], bool)
    of_stack: Array = np.append(stacks.with_frame(named), False)
    return of_stack[case.device.tensors.stack]


def _within(at: Array, begin: int, end: int) -> Array:
    return (at >= begin) & (at < end)


def _is_whole(case: FixCase, weights: Array) -> bool:
    """Returns whether gathered weights are those of all parameters: the shards have the same share of each."""
    tensors = case.device.tensors
    shards = np.flatnonzero((tensors.category == _PARAMETER) & (tensors.name >= 0))
    if not len(shards) or len(shards) != len(weights):
        return False
    sizes = tensors.requested_bytes[shards]
    ratios = (tensors.requested_bytes[weights] / np.maximum(sizes, 1))[sizes >= MIB]
    return bool(len(ratios)) and float(ratios.max()) < _EVEN * float(ratios.min())


def _blocks(case: FixCase, step: Step, paths: list[str]) -> list[BlockRun]:
    """Returns the blocks of a step in the order of forward."""
    sizes = case.device.tensors.requested_bytes[step.weights]
    of_block = np.array(paths)
    found = []
    for path in dict.fromkeys(path for path in paths if path):
        spans = case.modules.spans.get(path)
        frees = case.modules.blocks[path]
        frees = frees[_within(frees, step.backward, step.end)]
        spans = None if spans is None else spans[_within(spans[:, 0], step.begin, step.backward)]
        if spans is None or not len(spans) or not len(frees):
            return []
        share = float(sizes[of_block == path].sum() / sizes.sum())
        found.append(BlockRun(path, int(spans[0, 0]), int(spans[:, 1].max()), int(frees[0]), int(frees[-1]) + 1, share))
    return sorted(found, key=lambda block: block.begin)


def _edit(case: FixCase, step: Step, blocks: list[BlockRun], paths: list[str]) -> Edit:
    tensors = case.device.tensors
    of_block = np.array(paths)
    rest = 1 - sum(block.share for block in blocks)
    flat, reduced, shard = (int(tensors.requested_bytes[row]) for row in (step.flat, step.reduced, step.shard))
    freed = {step.flat: blocks[0].begin + 1}
    made: list[Made] = []
    for number, block in enumerate(blocks):
        weights = step.weights[of_block == block.path]
        # forward: FSDP frees the buffer of a block when that of the next one is in use
        later = blocks[number + 1].begin + 1 if number + 1 < len(blocks) else block.end
        made.append(Made(block.begin, later, int(flat * block.share), step.flat))
        made += [_copy(case, row, block.begin, block.end) for row in weights.tolist()]
    order = blocks[::-1]
    ends = [*(block.backward for block in order[1:]), order[-1].backward_end]
    begins = [order[0].backward, *(block.backward + 1 for block in order[:-1])]  # gathered one block in advance
    gradients = _gradients(case, step)
    released = [*ends[1:], int(tensors.alloc_at[step.reduced])]
    until = int(tensors.free_requested_at[step.shard])
    for block, begin, end, release in zip(order, begins, ends, released, strict=True):
        weights = step.weights[of_block == block.path]
        made.append(Made(begin, block.backward + 1, int(flat * block.share), step.flat))
        made += [_copy(case, row, block.backward, end) for row in weights.tolist()]
        made.append(Made(end, release, int(reduced * block.share), step.reduced))
        made.append(Made(end, until, int(shard * block.share), step.shard))
        own = gradients[_within(tensors.alloc_at[gradients], block.backward, end)]
        freed |= dict.fromkeys(own.tolist(), end)
    dropped = step.weights[np.isin(of_block, [block.path for block in blocks])]
    resized = {step.flat: int(flat * rest), step.reduced: int(reduced * rest), step.shard: int(shard * rest)}
    return Edit(frozenset(dropped.tolist()), freed, resized, made=tuple(made))


def _copy(case: FixCase, row: int, begin: int, end: int) -> Made:
    return Made(begin, end, int(case.device.tensors.requested_bytes[row]), row)


def _gradients(case: FixCase, step: Step) -> Array:
    """Returns the whole gradients of a step: backward makes them, and the reduction frees them."""
    tensors = case.device.tensors
    reduced_at = int(tensors.alloc_at[step.reduced])
    is_new = _within(tensors.alloc_at, step.backward, reduced_at)
    rows: Array = np.flatnonzero(is_new & _within(tensors.free_requested_at, reduced_at, step.end + 1))
    return rows
