"""Moves the activations of some blocks to the host between forward and backward.

They are the activations that ``checkpoint`` would recompute: all but the inputs of blocks, which later ones may share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from memdiag.fix.base import Proposal, Refusal
from memdiag.fix.case import FixCase
from memdiag.fix.cheapest import RecomputableParts, cheapest_sets, good_sets
from memdiag.fix.edit import Edit, Made, edited, live_curve, union
from memdiag.fix.remedies.checkpoint import find_blocks
from memdiag.fix.structure import barriers, few
from memdiag.offload.settings import OffloadSettings
from memdiag.text import phrase
from memdiag.trace.schema import CATEGORIES
from memdiag.trace.table import Array
from memdiag.units import MIB

NAME = "offload-saved"
_SMALLEST = MIB
_PARAMETER = CATEGORIES.index("parameter")
_S = 1_000_000  # microseconds


@dataclass(frozen=True)
class MovedBlock:
    """A block of the model whose activations can move.

    Attributes:
        path: Its path in the model.
        edit: The change if they move.
        moved_bytes: Bytes that a step copies to the host, and back again.
    """

    path: str
    edit: Edit
    moved_bytes: int


def propose(case: FixCase) -> Iterable[Proposal | Refusal]:
    """Yields the blocks with the fewest bytes with which the program fits; if none do, those with the lowest peak."""
    if case.trace.backend == "cpu" or case.subject.workload.captured:  # copies cannot be part of a CUDA graph
        return
    yield from (barrier.refusal for barrier in barriers(case, NAME, is_offload=True))
    blocks = find_moved(case)
    chosen = [blocks[row] for row in _choose(case, blocks)]
    if not chosen:
        return
    paths = [block.path for block in chosen]
    edit = union([block.edit for block in chosen])
    moved, link = sum(block.moved_bytes for block in chosen), OffloadSettings().link
    yield Proposal(
        NAME,
        phrase("fix.offload-saved", count=len(chosen)),
        (*few(paths), *(frame.label for frame in case.callers(np.array(sorted(edit.freed), np.int64))[-1:])),
        edit,
        "with torch.autograd.graph.save_on_cpu(pin_memory=True): x = block(x)",
        phrase("fix.offload-saved.caveat"),
        None,
        "offload_saved",
        {"modules": paths, "smallest_bytes": _SMALLEST},
        moved_bytes=moved,
        copy_us=int(moved / link.away * _S + moved / link.back * _S),
    )


def _choose(case: FixCase, blocks: list[MovedBlock]) -> tuple[int, ...]:
    """Returns the numbers of the chosen blocks: live bytes order the sets, and replays decide which one fits."""
    if not blocks:
        return ()
    workload, given = case.subject.workload, case.given.edit
    live = live_curve(edited(workload, given))
    change = np.array([live_curve(edited(workload, given | block.edit)) - live for block in blocks], np.int64)
    cost = np.array([block.moved_bytes for block in blocks], np.int64)
    front = cheapest_sets(
        good_sets(RecomputableParts.of(live, change, cost, np.zeros((len(blocks), len(blocks)), bool)))
    )
    if not front:
        return ()
    at = bisect_left(
        front, True, key=lambda each: case.peaks_with(union([blocks[row].edit for row in each.chosen])).fits
    )
    return front[min(at, len(front) - 1)].chosen


def find_moved(case: FixCase) -> list[MovedBlock]:
    """Returns the outermost blocks whose activations no chosen remedy removes, in the order of the model's forward."""
    found = find_blocks(case)
    paths = [block.path for block in found]
    tensors, steps = case.device.tensors, case.device.events.step
    casts = _casts(case)
    blocks = []
    for block in found:
        if any(block.path.startswith(f"{path}.") for path in paths) or case.given.edit.freed.keys() & block.edit.freed:
            continue
        freed: dict[int, int] = {}
        made: list[Made] = []
        moved: dict[int, int] = {}
        for repeat in block.edit.repeats:
            step = int(steps[repeat.begin])
            for row in repeat.freed:
                size = int(tensors.requested_bytes[row])
                is_let_go = block.edit.freed[row] <= repeat.end  # a later part may use the output of the block
                if size >= _SMALLEST and size not in casts and is_let_go:
                    freed[row] = repeat.end
                    made.append(Made(repeat.at, int(tensors.free_requested_at[row]), size, row))
                    moved[step] = moved.get(step, 0) + size
        if made:
            blocks.append(MovedBlock(block.path, Edit(freed=freed, made=tuple(made)), max(moved.values())))
    return blocks


def _casts(case: FixCase) -> set[int]:
    """Returns sizes of copies of weights in 16 bits: autocast keeps them, so they stay on the device."""
    tensors = case.device.tensors
    sizes: Array = tensors.requested_bytes[tensors.category == _PARAMETER]
    return set((sizes // 2).tolist())
