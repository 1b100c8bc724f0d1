"""Recomputes the activations of some parts of the model in backward (activation checkpointing).

The parts are the numbered blocks ("layers.3"), and the modules in those that keep much. Their cost is the share of the
training forward that runs again, estimated from the bytes that they allocate.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.fix.base import Proposal, Refusal
from memdiag.fix.case import FixCase, Peaks
from memdiag.fix.cheapest import PartSet, RecomputableParts, cheapest_sets, good_sets
from memdiag.fix.edit import Edit, Made, Repeat, edited, live_curve, union
from memdiag.fix.structure import barriers, few, switch_of
from memdiag.offload.passes import BACKWARD, FORWARD
from memdiag.text import phrase
from memdiag.trace.recorded import module_at
from memdiag.trace.schema import ALLOC
from memdiag.trace.table import Array

NAME = "checkpoint"
_PARTS = "torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False)  # for the parts of the block"
_NEAR = 8  # events
_OUTPUT = 16  # largest ratio between a tensor that a call leaves behind and its output; statistics are smaller
_LARGE = 1 / 6  # share of the saved bytes above which the modules in a part are candidates too
_FEW = 1 / 3  # share below which the numbered blocks are not the ones that matter
_SMALL = 1 / 100  # share below which a part is no candidate
_TRIED, _LEAST_TRIED = 256, 8  # replays of sets that cost less than the first one that fits
_CALLS = 2_000_000  # calls of the allocator in these replays
_WORTH = 1.1  # ratio of costs for which sets are tried if there are too many
_LAST = 8
_SPEED = 100_000  # bytes that forward allocates per microsecond: about those of a transformer on a card of 2022
_MOST = 0.6  # share above which recomputing a part is recomputing the model


@dataclass(frozen=True)
class Block:
    """A part of the model.

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


def propose(case: FixCase) -> Iterable[Proposal | Refusal]:
    """Yields the cheapest set of parts with which the program fits; if none does, the one with the lowest peak."""
    yield from (barrier.refusal for barrier in barriers(case, NAME))
    several = [path for path in case.modules.blocks if path in case.returning]
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
    return max(sum(block.cost for block in chosen) // (_SPEED * max(len(steps), 1)), 1)


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
    closed = _closed(case)
    numbered = [path for path in case.modules.blocks if path not in closed]
    found = {path: block for path in numbered if (block := _block(case, path)) is not None}
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
        block = found.get(path) or _block(case, path)
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
        if any(np.searchsorted(walls, begin) < np.searchsorted(walls, end) for begin, end, _, _ in _calls(case, path))
    }


def _children(case: FixCase) -> dict[str, list[str]]:
    """Returns the modules that are called directly below each called one; "": those that no other one contains.

    Models are left out: they are named by their class, and a remedy only finds the modules inside them.
    """
    recorded = case.trace.recorded
    if recorded is None:
        return {"": []}
    called = {recorded.names[name] for name in np.unique(recorded.modules["name"]).tolist() if name >= 0}
    tops = {name.partition(".")[0] for name in recorded.names if "." in name and " " not in name}
    called = {path for path in called if path.partition(".")[0] in tops}
    found: dict[str, list[str]] = {"": []}
    for path in sorted(called):
        above = path.rpartition(".")[0]
        while above and above not in called:
            above = above.rpartition(".")[0]
        found.setdefault(above, []).append(path)
    return found


def _pairs(case: FixCase) -> Iterator[tuple[int, int, int, int]]:
    """Yields begin and end of each forward pass, and of the backward pass that follows it."""
    passes = case.passes
    for i in np.flatnonzero((passes.phase[:-1] == FORWARD) & (passes.phase[1:] == BACKWARD)).tolist():
        yield int(passes.begin[i]), int(passes.end[i]), int(passes.begin[i + 1]), int(passes.end[i + 1])


def _saved_bytes(case: FixCase) -> int:
    """Returns the bytes that forward saves for backward, in the largest pass."""
    tensors = case.device.tensors
    made, freed = tensors.alloc_at, tensors.free_requested_at
    return max(
        (
            int(tensors.block_bytes[(made >= begin) & (made < end) & (freed >= after) & (freed < last)].sum())
            for begin, end, after, last in _pairs(case)
        ),
        default=0,
    )


def _block(case: FixCase, path: str) -> Block | None:
    if path not in case.modules.spans:
        return None
    tensors = case.device.tensors
    repeats: list[Repeat] = []
    freed: dict[int, int] = {}
    held: dict[int, int] = {}
    made_again: list[Made] = []
    saved_bytes = cost = 0
    latest = np.empty(0, np.int64)
    allocs = np.flatnonzero(case.device.events.action == ALLOC)
    for begin, end, backward, backward_end in _calls(case, path):
        kept = (tensors.free_requested_at >= backward) & (tensors.free_requested_at < backward_end)
        later = np.flatnonzero(kept & (tensors.alloc_at >= end) & (tensors.alloc_at < backward))
        mine = np.flatnonzero(kept & (tensors.alloc_at >= begin) & (tensors.alloc_at < end))
        reached = int(tensors.free_requested_at[later].max(initial=backward))
        # Later parts save only the output of the block, which remains. Backward frees it before the block's other
        # tensors: with those of the later part, or after the block's last operator.
        inner = mine[tensors.free_requested_at[mine] > reached]
        if len(mine) and len(inner) == len(mine) and _keeps_output(case, begin, end, mine):
            reached = int(tensors.free_requested_at[mine].min())
            inner = mine[tensors.free_requested_at[mine] > reached]
        if not len(inner):
            continue
        again = {row: _freed_earlier(case, row) for row in inner.tolist()}
        casts = case.casts.made_in(begin, end)
        latest = casts if len(casts) else case.casts.still_cached(case.device, latest, begin)
        cached = frozenset(casts[tensors.free_requested_at[casts] >= backward_end].tolist())
        # frees that follow belong to the operator before; the next one that allocates needs the block
        following = allocs[min(int(np.searchsorted(allocs, reached)), len(allocs) - 1)]
        repeats.append(Repeat(begin, end, int(following), again, cached))
        if not len(casts):  # autocast still has the copies of an earlier call, but recomputing makes its own
            until = max(again.values())
            made_again += [
                Made(int(following), until, int(tensors.requested_bytes[row]), row) for row in latest.tolist()
            ]
        freed |= dict.fromkeys(inner.tolist(), end)
        released = case.casts.freed_without_autograd(case.device, casts, backward)
        freed |= dict.fromkeys(np.intersect1d(inner, casts).tolist(), released)
        for row in _inputs(case, path, begin):
            if tensors.free_requested_at[row] < backward:
                held[row] = max(again.values())
        saved_bytes = max(saved_bytes, int(tensors.block_bytes[inner].sum()))
        made = (tensors.alloc_at >= begin) & (tensors.alloc_at < end)
        cost += int(tensors.block_bytes[made].sum())
    edit = Edit(freed=freed, repeats=tuple(repeats), held=held, made=tuple(made_again))
    return Block(path, edit, saved_bytes, cost) if repeats else None


def _inputs(case: FixCase, path: str, begin: int) -> Iterator[int]:
    """Yields the tensors of forward that a call gets, as rows in Tensors: the latest ones of their sizes.

    PyTorch keeps the arguments of a recomputed block until its backward, even if autograd did not save them.
    """
    tensors = case.device.tensors
    rows = np.flatnonzero((tensors.alloc_at < begin) & (tensors.free_requested_at >= begin))
    for size in case.inputs.get(path, ()):
        same = rows[tensors.requested_bytes[rows] == size]
        latest = int(same[np.argmax(tensors.alloc_at[same])]) if len(same) else -1
        if latest >= 0 and tensors.phase_alloc[latest] == FORWARD:  # the program itself holds a batch
            yield latest


def _keeps_output(case: FixCase, begin: int, end: int, kept: Array) -> bool:
    """Returns whether backward needs the output of a call: the last large tensor of those that outlive it.

    The output of a block whose last operator is linear, for example, is freed when a residual has been added.

    Args:
        case: The recording.
        begin, end: The call.
        kept: The tensors of the call that backward needs, as rows in Tensors.
    """
    tensors = case.device.tensors
    made = (tensors.alloc_at >= begin) & (tensors.alloc_at < end) & (tensors.free_requested_at >= end)
    rows = np.flatnonzero(made)
    rows = rows[tensors.block_bytes[rows] * _OUTPUT >= tensors.block_bytes[rows].max(initial=0)]
    return not len(rows) or bool(rows[np.argmax(tensors.alloc_at[rows])] in kept)


def _freed_earlier(case: FixCase, row: int) -> int:
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


def _calls(case: FixCase, path: str) -> Iterator[tuple[int, int, int, int]]:
    """Yields begin and end of each call of a block in forward, and of the backward pass that uses it."""
    spans = case.modules.spans[path]
    is_first = np.append(True, spans[1:, 0] > np.maximum.accumulate(spans[:, 1])[:-1])
    begins, ends = spans[is_first, 0], np.append(spans[:, 1][:-1][is_first[1:]], spans[-1, 1])
    for forward, forward_end, backward, backward_end in _pairs(case):
        for call in np.flatnonzero((begins >= forward) & (begins < forward_end)).tolist():
            begin, end = int(begins[call]), min(int(ends[call]), forward_end)
            yield begin, end, *_backward_of(case, begin, end, (backward, backward_end))


def _backward_of(case: FixCase, begin: int, end: int, following: tuple[int, int]) -> tuple[int, int]:
    """Returns begin and end of the backward pass that frees most bytes of a call.

    It is not the following one if the program calls backward on another loss first, as with two models.

    Args:
        case: The recording.
        begin, end: The call.
        following: Begin and end of the first backward pass after it.
    """
    tensors, passes = case.device.tensors, case.passes
    chosen = (passes.phase == BACKWARD) & (passes.begin >= following[0])
    begins, ends = passes.begin[chosen], passes.end[chosen]
    rows = np.flatnonzero((tensors.alloc_at >= begin) & (tensors.alloc_at < end))
    freed = tensors.free_requested_at[rows]
    number = np.searchsorted(begins, freed, side="right") - 1
    is_inside = (number >= 0) & (freed < ends[number])
    if not is_inside.any():
        return following
    sums = np.bincount(number[is_inside], weights=tensors.block_bytes[rows][is_inside])
    most = int(np.argmax(sums))
    return int(begins[most]), int(ends[most])


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
    for begin, end, _, _ in _pairs(case):
        for call, call_end, loss_end in _model_calls(is_running, begin, end):
            if (is_saved & (made >= call) & (made < call_end)).any():
                total += int(tensors.block_bytes[(made >= call) & (made < loss_end)].sum())
    return total


def _model_calls(is_running: Array, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields begin and end of each call of a model in a forward pass, and the end of the code after it, as its loss.

    Args:
        is_running: Whether code of a module runs at each event; if it never does, the whole pass is one call.
        begin, end: The pass.
    """
    running = is_running[begin:end]
    starts = np.flatnonzero(running & ~np.append(False, running[:-1]))
    if not len(starts):
        yield begin, end, end
        return
    ends = np.flatnonzero(running & ~np.append(running[1:], False)) + 1
    for start, stop, following in zip(starts, ends, np.append(starts[1:], len(running)), strict=True):
        yield begin + int(start), begin + int(stop), begin + int(following)
