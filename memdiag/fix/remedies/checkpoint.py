"""Recomputes the activations of some parts of the model in backward (activation checkpointing).

The parts are the numbered blocks ("layers.3"), and the modules in those that keep much. Their cost is the share of the
training forward that runs again, estimated from the bytes that they allocate.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import numpy as np

from memdiag.fix.base import Proposal, Refusal
from memdiag.fix.blocks import Block, block_of, called_in, calls_of, model_calls, recompute_us, training_passes
from memdiag.fix.case import FixCase, Peaks
from memdiag.fix.cheapest import PartSet, RecomputableParts, cheapest_sets, good_sets
from memdiag.fix.edit import edited, live_curve, union
from memdiag.fix.structure import barriers, few, switch_of
from memdiag.offload.passes import BACKWARD
from memdiag.text import phrase
from memdiag.trace.recorded import module_at
from memdiag.trace.table import Array

NAME = "checkpoint"
_PARTS = "torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False)  # for the parts of the block"
_LARGE = 1 / 6  # share of the saved bytes above which the modules in a part are candidates too
_FEW = 1 / 3  # share below which the numbered blocks are not the ones that matter
_SMALL = 1 / 100  # share below which a part is no candidate
_TRIED, _LEAST_TRIED = 256, 8  # replays of sets that cost less than the first one that fits
_CALLS = 2_000_000  # calls of the allocator in these replays
_WORTH = 1.1  # ratio of costs for which sets are tried if there are too many
_LAST = 8
_MOST = 0.6  # share above which recomputing a part is recomputing the model


def propose(case: FixCase) -> Iterable[Proposal | Refusal]:
    """Yields the cheapest set of parts with which the program fits; if none does, the one with the lowest peak."""
    yield from (barrier.refusal for barrier in barriers(case, NAME))
    numbered_paths = [path for each in case.modules.blocks for path in called_in(case, each)]
    several = [path for path in numbered_paths if path in case.returning]
    if several:
        yield Refusal(NAME, phrase("fix.refused.outputs"), few(several), _PARTS)
    blocks = find_blocks(case)
    rows = _choose(case, blocks)
    if not rows:
        return
    chosen = [blocks[row] for row in rows]
    paths = [block.path for block in chosen]
    numbered = {block.path for block in blocks} & case.modules.blocks.keys()
    words = phrase("fix.checkpoint.parts", count=len(chosen))
    if numbered.issuperset(paths):
        words = phrase("fix.checkpoint", count=len(chosen), total=len(numbered))
    yield Proposal(
        NAME,
        words,
        (*few(paths), *(frame.label for frame in case.callers(_rows(chosen))[-1:])),
        union([block.edit for block in chosen]),
        switch_of(case) or "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
        phrase("fix.checkpoint.caveat"),
        None,
        "checkpoint_modules",
        {"modules": paths},
        forward_share=sum(block.cost for block in chosen) / max(_forward_bytes(case), 1),
        recompute_us=_recompute_us(case, chosen),
    )


def _rows(chosen: list[Block]) -> Array:
    """Returns the tensors that blocks no longer keep, as rows in Tensors."""
    return np.array(sorted({row for block in chosen for row in block.edit.freed}), np.int64)


def _recompute_us(case: FixCase, chosen: list[Block]) -> int:
    steps = {int(case.device.events.step[repeat.begin]) for block in chosen for repeat in block.edit.repeats}
    return recompute_us(sum(block.cost for block in chosen), len(steps))


def _choose(case: FixCase, blocks: list[Block]) -> tuple[int, ...]:
    """Returns the numbers of the chosen parts.

    Live bytes decide which sets are tried, and replays whether they fit: the same live bytes may need more or less
    memory, depending on the order of requests.
    """
    sets = good_sets(_parts(case, blocks))
    front = cheapest_sets(sets)
    if not front:
        return ()

    def peaks(each: PartSet) -> Peaks:
        return case.peaks_with(union([blocks[row].edit for row in each.chosen]))

    at = bisect_left(front, True, key=lambda each: peaks(each).fits)
    found = front[at] if at < len(front) else None
    limit = None if case.workspaces.following else case.room_bytes  # a program survives without workspaces
    possible = [each for each in sets if limit is None or each.peak <= limit]
    possible = [each for each in possible if found is None or each.cost < found.cost]
    tried = max(min(_TRIED, _CALLS // max(len(case.subject.workload.op), 1)), _LEAST_TRIED)
    if len(possible) > tried:
        wanted = [each for each in possible if found is None or _WORTH * each.cost < found.cost]
        possible = sorted(wanted, key=lambda each: each.peak)[:tried]
    for each in sorted(possible, key=lambda one: one.cost):
        if peaks(each).fits:
            return each.chosen
    if found is not None:
        return found.chosen
    return min(front[-_LAST:], key=lambda each: peaks(each).reserved).chosen


def _parts(case: FixCase, blocks: list[Block]) -> RecomputableParts:
    """Returns the live bytes over time, and how each part changes them."""
    workload = case.subject.workload
    live = live_curve(edited(workload, case.given.edit))
    curves = [live_curve(edited(workload, case.given.edit | block.edit)) - live for block in blocks]
    paths = [f"{block.path}." for block in blocks]
    excludes = [[one != other and (one.startswith(other) or other.startswith(one)) for one in paths] for other in paths]
    return RecomputableParts.of(
        live,
        np.array(curves, np.int64).reshape(len(blocks), len(live)),
        np.array([block.cost for block in blocks], np.int64),
        np.array(excludes, bool).reshape(len(blocks), len(blocks)),
    )


def find_blocks(case: FixCase) -> list[Block]:
    """Returns the parts that can be recomputed, in the order of the model's forward."""
    if NAME not in case.memo:
        case.memo[NAME] = _find_blocks(case)
    found: list[Block] = case.memo[NAME]
    return found


def _find_blocks(case: FixCase) -> list[Block]:
    closed = _closed(case)
    numbered = [path for each in case.modules.blocks for path in called_in(case, each) if path not in closed]
    found = {path: block for path in numbered if (block := block_of(case, path)) is not None}
    below = _children(case)
    total, everything = sum(block.saved_bytes for block in found.values()), _saved_bytes(case)
    waiting = [path for path, block in found.items() if block.saved_bytes > _LARGE * total]
    if total < _FEW * everything:  # the numbers are those of layers in a Sequential, for example
        total, waiting = everything, waiting + below[""]
    waiting += [path for path in case.modules.blocks if path in closed]
    while waiting:
        path = waiting.pop()
        if path in closed:
            waiting += below.get(path, ())
            continue
        block = found.get(path) or block_of(case, path)
        if block is not None and block.saved_bytes > _SMALL * total:
            found[path] = block
            if block.saved_bytes > _LARGE * total:
                waiting += below.get(path, ())
    kept = [block for block in found.values() if not total or block.saved_bytes <= _MOST * total]
    return sorted(kept, key=lambda block: block.edit.repeats[0].begin)


def _closed(case: FixCase) -> set[str]:
    """Returns the modules that contain code which must not be recomputed."""
    several = set(case.returning)  # the program may keep these outputs, though no later operator saved them
    rows = [barrier.rows for barrier in barriers(case, NAME)]
    if not rows:
        return several
    walls = np.sort(case.device.tensors.alloc_at[np.concatenate(rows)])
    return several | {
        path
        for path in case.modules.spans
        if any(np.searchsorted(walls, begin) < np.searchsorted(walls, end) for begin, end, _, _ in calls_of(case, path))
    }


def _children(case: FixCase) -> dict[str, list[str]]:
    """Returns the modules that are called directly below each called one; "": those that no other one contains.

    Models are left out: they are named by their class, and a remedy only finds the modules inside them.
    """
    recorded = case.trace.recorded
    if recorded is None:
        return {"": []}
    tops = {name.partition(".")[0] for name in recorded.names if "." in name and " " not in name}
    running = {path for path in case.called if path.partition(".")[0] in tops}
    found: dict[str, list[str]] = {"": []}
    for path in sorted(running):
        above = path.rpartition(".")[0]
        while above and above not in running:
            above = above.rpartition(".")[0]
        found.setdefault(above, []).append(path)
    return found


def _saved_bytes(case: FixCase) -> int:
    """Returns the bytes that forward saves for backward, in the largest pass."""
    tensors = case.device.tensors
    made, freed = tensors.alloc_at, tensors.free_requested_at
    return max(
        (
            int(tensors.block_bytes[(made >= begin) & (made < end) & (freed >= after) & (freed < last)].sum())
            for begin, end, after, last in training_passes(case)
        ),
        default=0,
    )


def _forward_bytes(case: FixCase) -> int:
    """Returns the bytes that training forwards allocate.

    Calls of a model from which backward frees nothing, as in an evaluation, do not count.
    """
    tensors, phase = case.device.tensors, case.device.events.phase
    made, freed = tensors.alloc_at, tensors.free_requested_at
    is_saved = (freed < len(phase)) & (phase[np.minimum(freed, len(phase) - 1)] == BACKWARD)
    recorded = case.trace.recorded
    is_running = np.zeros(len(phase), bool) if recorded is None else module_at(recorded, case.device) >= 0
    total = 0
    for begin, end, _, _ in training_passes(case):
        for call, call_end, loss_end in model_calls(is_running, begin, end):
            if (is_saved & (made >= call) & (made < call_end)).any():
                total += int(tensors.block_bytes[(made >= call) & (made < loss_end)].sum())
    return total
