"""Changes the requests of a recorded program to those that it would make with a remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from memdiag.allocator.workload import ALLOC, EMPTY_CACHE, FREE, FREE_COMPLETED, FREE_REQUESTED, Workload
from memdiag.trace.table import Array

ROUNDING = 512  # bytes; the allocators of PyTorch for CUDA and NPU round to it
_FREES = (FREE, FREE_REQUESTED, FREE_COMPLETED)


@dataclass(frozen=True)
class Repeat:
    """Requests that are made a second time.

    Attributes:
        begin, end: Events of the first time, half open.
        at: Event before which they are made again.
        freed: Event at which the copy of a tensor is freed, by row in Tensors: the free of its use in backward. The
            copies of other tensors are freed as in the first time, or at the end of the repetition. It ends when the
            last of these tensors is allocated: PyTorch stops recomputing after its operator.
        cached: Rows of tensors that are still live, so that they are not made again.
        also: Rows of the tensors that the last operator allocates after the last of these.
    """

    begin: int
    end: int
    at: int
    freed: Mapping[int, int]
    cached: frozenset[int] = frozenset()
    also: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Made:
    """A tensor that only the changed program allocates.

    Attributes:
        begin, end: Events before which it is allocated and freed.
        size: Requested bytes.
        like: Row in Tensors whose stream and pool it uses.
    """

    begin: int
    end: int
    size: int
    like: int


@dataclass(frozen=True)
class TemporaryCalls:
    """Temporary tensors that are allocated and freed in some order, at one event.

    Attributes:
        at: Event before which this happens.
        steps: Number of a tensor, and its requested bytes where it is allocated, or 0 where it is freed.
        like: Row in Tensors whose stream and pool they use.
    """

    at: int
    steps: tuple[tuple[int, int], ...]
    like: int


@dataclass(frozen=True)
class Edit:
    """What a remedy changes.

    Attributes:
        dropped: Rows in Tensors that are no longer allocated.
        freed: New events of frees, by row in Tensors.
        resized: New requested bytes, by row in Tensors.
        repeats: Requests that are made a second time.
        added: Temporary tensors: event, bytes, and the row in Tensors whose stream and pool they use.
        scripts: Temporary tensors in some order.
        made: Additional tensors that live for a while.
        held: Later events of frees, by row in Tensors; they win over ``freed``.
        pools: Pools to use instead of others, as indices into the pools of the workload.
        own_pool: Rows in Tensors that are allocated in an additional pool.
        releases: Events before which the program releases its cached memory.
    """

    dropped: frozenset[int] = frozenset()
    freed: Mapping[int, int] = field(default_factory=dict)
    resized: Mapping[int, int] = field(default_factory=dict)
    repeats: tuple[Repeat, ...] = ()
    added: tuple[tuple[int, int, int], ...] = ()
    pools: Mapping[int, int] = field(default_factory=dict)
    made: tuple[Made, ...] = ()
    held: Mapping[int, int] = field(default_factory=dict)
    scripts: tuple[TemporaryCalls, ...] = ()
    own_pool: frozenset[int] = frozenset()
    releases: tuple[int, ...] = ()

    def __or__(self, other: Edit) -> Edit:
        """Returns both changes: of two frees of a tensor the earlier one, and of two times to hold it the later one."""
        freed, held = dict(self.freed), dict(self.held)
        for row, at in other.freed.items():
            freed[row] = min(at, freed.get(row, at))
        for row, at in other.held.items():
            held[row] = max(at, held.get(row, at))
        resized = {**self.resized, **other.resized}
        return Edit(
            self.dropped | other.dropped,
            freed,
            resized,
            self.repeats + other.repeats,
            self.added + other.added,
            {**self.pools, **other.pools},
            self.made + other.made,
            held,
            self.scripts + other.scripts,
            self.own_pool | other.own_pool,
            self.releases + other.releases,
        )


@dataclass
class _AddedCalls:
    """Calls to add, a list per column, and the place before which each is made."""

    where: list[int] = field(default_factory=list)
    op: list[int] = field(default_factory=list)
    tensor: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    stream: list[int] = field(default_factory=list)
    pool: list[int] = field(default_factory=list)

    def add(self, where: int, op: int, tensor: int, size: int, stream: int, pool: int) -> None:
        """Adds one call."""
        for column, value in zip(
            (self.where, self.op, self.tensor, self.size, self.stream, self.pool),
            (where, op, tensor, size, stream, pool),
            strict=True,
        ):
            column.append(value)


def edited(workload: Workload, edit: Edit) -> Workload:
    """Returns the requests of a program with the changes of its remedies.

    Args:
        workload: The recorded requests; its tensor numbers are rows in Tensors.
        edit: The changes.
    """
    workload = _in_own_pool(_in_pools(workload, edit.pools), edit.own_pool)
    keep = np.ones(len(workload.op), bool)
    is_free = np.isin(workload.op, _FREES)
    if edit.dropped:
        keep &= ~np.isin(workload.tensor, np.fromiter(edit.dropped, np.int64, len(edit.dropped)))
    moved = {row: at for row, at in {**edit.freed, **edit.held}.items() if row not in edit.dropped}
    keep &= ~(is_free & np.isin(workload.tensor, np.fromiter(moved, np.int64, len(moved))))
    made = np.full(workload.num_tensors, -1, np.int64)
    allocs = np.flatnonzero((workload.op == ALLOC) & (workload.tensor >= 0))
    made[workload.tensor[allocs]] = allocs
    if edit.resized:
        sizes = workload.size.copy()
        for row, requested in edit.resized.items():
            if made[row] >= 0:
                sizes[made[row]] = requested
        workload = replace(workload, size=sizes)
    calls, following = _AddedCalls(), workload.num_tensors
    for event in edit.releases:
        calls.add(int(np.searchsorted(workload.row, event)), EMPTY_CACHE, -1, 0, 0, -1)
    for row, at in moved.items():
        where = max(int(np.searchsorted(workload.row, at)), int(made[row]) + 1)
        if where < len(workload.op):
            calls.add(where, FREE, row, 0, _stream(workload, made, row), -1)
    for event, size, like in edit.added:
        where, first = int(np.searchsorted(workload.row, event)), int(made[like])
        stream, pool = (int(workload.stream[first]), int(workload.pool[first])) if first >= 0 else (0, 0)
        calls.add(where, ALLOC, following, size, stream, pool)
        calls.add(where, FREE, following, 0, stream, -1)
        following += 1
    for script in edit.scripts:
        following = _play(workload, script, made, calls, following)
    following = _make(workload, edit.made, made, calls, following)
    for repeat in edit.repeats:
        following = _repeat(workload, repeat, edit.dropped, calls, following)
    return _merged(workload, keep, calls, following)


def _play(workload: Workload, script: TemporaryCalls, first: Array, calls: _AddedCalls, following: int) -> int:
    """Adds the calls of a script; returns the next free tensor number."""
    where, like = int(np.searchsorted(workload.row, script.at)), int(first[script.like])
    stream, pool = (int(workload.stream[like]), int(workload.pool[like])) if like >= 0 else (0, 0)
    number: dict[int, int] = {}
    for tensor, size in script.steps:
        if size:
            number[tensor], following = following, following + 1
            calls.add(where, ALLOC, number[tensor], size, stream, pool)
        else:
            calls.add(where, FREE, number[tensor], 0, stream, -1)
    return following


def _make(workload: Workload, made: tuple[Made, ...], first: Array, calls: _AddedCalls, following: int) -> int:
    """Adds the calls of additional tensors, at one event the frees first; returns the next free tensor number."""
    steps = [(each.end, 0, number) for number, each in enumerate(made)]
    steps += [(each.begin, 1, number) for number, each in enumerate(made)]
    for event, is_alloc, number in sorted(steps):
        each, where = made[number], int(np.searchsorted(workload.row, event))
        like = int(first[each.like])
        stream, pool = (int(workload.stream[like]), int(workload.pool[like])) if like >= 0 else (0, 0)
        if is_alloc:
            calls.add(where, ALLOC, following + number, each.size, stream, pool)
        elif where < len(workload.op):
            calls.add(where, FREE, following + number, 0, stream, -1)
    return following + len(made)


def _in_pools(workload: Workload, pools: Mapping[int, int]) -> Workload:
    if not pools:
        return workload
    other = np.arange(len(workload.pools), dtype=workload.pool.dtype)
    other[list(pools)] = list(pools.values())
    return replace(workload, pool=np.where(workload.pool >= 0, other[workload.pool], workload.pool))


def _in_own_pool(workload: Workload, rows: frozenset[int]) -> Workload:
    if not rows:
        return workload
    chosen = (workload.op == ALLOC) & np.isin(workload.tensor, np.fromiter(rows, np.int64, len(rows)))
    taken = max((minor for major, minor in workload.pools if major == 0), default=0)
    pool = np.where(chosen & (workload.pool <= 0), len(workload.pools), workload.pool).astype(workload.pool.dtype)
    return replace(workload, pool=pool, pools=(*workload.pools, (0, taken + 1)))


def _stream(workload: Workload, made: Array, row: int) -> int:
    return int(workload.stream[made[row]]) if made[row] >= 0 else 0


def _repeat(workload: Workload, repeat: Repeat, dropped: frozenset[int], calls: _AddedCalls, following: int) -> int:
    """Adds the calls of a repetition; returns the next free tensor number."""
    first, last = (int(np.searchsorted(workload.row, at)) for at in (repeat.begin, repeat.end))
    where = int(np.searchsorted(workload.row, repeat.at))
    wanted = np.array([*repeat.freed, *repeat.also], np.int64)
    needed = np.flatnonzero((workload.op[first:last] == ALLOC) & np.isin(workload.tensor[first:last], wanted))
    last = first + int(needed[-1]) + 1 if len(needed) else first
    number: dict[int, int] = {}
    stream: dict[int, int] = {}
    for call in range(first, last):
        op, row = int(workload.op[call]), int(workload.tensor[call])
        if row < 0 or row in dropped or row in repeat.cached:
            continue
        if op == ALLOC:
            number[row], stream[row] = following, int(workload.stream[call])
            calls.add(where, ALLOC, following, int(workload.size[call]), stream[row], int(workload.pool[call]))
            following += 1
        elif op in (FREE, FREE_REQUESTED) and row in number and row not in repeat.freed:
            calls.add(where, FREE, number.pop(row), 0, stream[row], -1)
    for row, copy in number.items():
        until = where if row not in repeat.freed else max(int(np.searchsorted(workload.row, repeat.freed[row])), where)
        if until < len(workload.op):
            calls.add(until, FREE, copy, 0, stream[row], -1)
    return following


def _merged(workload: Workload, keep: Array, calls: _AddedCalls, num_tensors: int) -> Workload:
    rest = np.flatnonzero(keep)
    place = np.searchsorted(rest, np.array(calls.where, np.int64))
    order = np.argsort(place, kind="stable")
    columns: dict[str, Array] = {}
    for name in ("op", "tensor", "size", "stream", "pool"):
        own = getattr(workload, name)[rest]
        columns[name] = np.insert(own, place[order], np.array(getattr(calls, name), own.dtype)[order])
    rows = workload.row[rest]
    last = rows[-1] if len(rows) else workload.num_rows - 1
    columns["row"] = np.insert(rows, place[order], np.append(rows, last)[place[order]])
    return replace(workload, **columns, num_tensors=num_tensors)  # type: ignore[arg-type]


def union(edits: Sequence[Edit]) -> Edit:
    """Returns all changes together."""
    together = Edit()
    for edit in edits:
        together |= edit
    return together


def live_curve(workload: Workload, rounding: int = ROUNDING) -> Array:
    """Returns the most live bytes (int64) around each row of a trace, relative to the beginning.

    Args:
        workload: The requests.
        rounding: Bytes to a multiple of which the allocator rounds requests.
    """
    size = np.zeros(workload.num_tensors + 1, np.int64)
    start = workload.start
    size[start.block_tensor] = start.block_size
    allocs = workload.op == ALLOC
    size[workload.tensor[allocs]] = -(-workload.size[allocs] // rounding) * rounding
    frees = np.isin(workload.op, (FREE, FREE_REQUESTED)) & (workload.tensor >= 0)
    change = np.where(allocs, size[workload.tensor], np.where(frees, -size[workload.tensor], 0))
    row = np.maximum(workload.row, 0)
    first = np.flatnonzero(np.append(True, row[1:] != row[:-1]))
    curve = np.full(workload.num_rows + 1, np.iinfo(np.int64).min, np.int64)
    curve[row[first]] = np.maximum.reduceat(np.cumsum(change), first)
    known = np.maximum.accumulate(np.where(curve > np.iinfo(np.int64).min, np.arange(len(curve)), 0))
    filled: Array = curve[known]
    return filled
