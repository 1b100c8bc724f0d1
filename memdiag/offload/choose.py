"""Chooses the tensors to move: all of a kind (forced), or as many as needed to fit the device (automatic).

The automatic strategy finds the peak of live bytes, and removes the tensor with the longest idle time beyond its copy
time. It repeats this for the next peak, until all are low enough. Tensors that the links cannot copy in time are not
moved, unless waiting is allowed. Tensors without room on the host go to disk, and the copies are scheduled again with
the disk's rates (overflow.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from memdiag.offload.clock import Clock
from memdiag.offload.elsewhere import Elsewhere
from memdiag.offload.overflow import overflow, without_overflow
from memdiag.offload.schedule import CPU, DISK, Copies, Moves, copy_seconds, schedule
from memdiag.offload.settings import OffloadSettings
from memdiag.offload.windows import PARAMETER, STATE, Windows
from memdiag.trace.schema import CATEGORIES
from memdiag.trace.table import Array

_ROUNDS = 12  # rounds of choosing and scheduling
_PEAKS = 400  # number of peaks per round
_GIVEN_UP = -(1 << 62)  # load of a peak that cannot be lowered


@dataclass(frozen=True)
class ChosenMoves:
    """Moves, and their effect.

    Attributes:
        moves: The moves.
        load: Live bytes of the device after each event.
        elsewhere: Memory that they need on the host and on disk.
        clock: Event times with these moves, which are later if the program waits for room.
        stall_seconds: Time that the program waits for room, over the whole trace.
        target: Limit of ``load``, or None.
    """

    moves: Moves
    load: Array
    elsewhere: Elsewhere
    clock: Clock
    stall_seconds: float
    target: int | None

    @property
    def host_bytes(self) -> int:
        """Peak size of the pinned pool."""
        return self.elsewhere.host[0]

    @property
    def host_used_bytes(self) -> int:
        """Peak bytes used in the pinned pool."""
        return self.elsewhere.host[1]

    @property
    def disk_bytes(self) -> int:
        """Peak bytes on disk."""
        return self.elsewhere.disk

    @property
    def is_enough(self) -> bool:
        """True if ``load`` never exceeds the target, and the host and the disk have room."""
        return (self.target is None or int(self.load.max(initial=0)) <= self.target) and self.elsewhere.has_room


def forced(windows: Windows, load: Array, clock: Clock, settings: OffloadSettings, checkpoints: Array) -> ChosenMoves:
    """Moves the tensors named by ``offload_param`` and ``offload_checkpoint`` whenever they are idle.

    Args:
        windows: All of them.
        load: Live bytes after each event, without moves.
        clock: Times of events.
        settings: The requested settings.
        checkpoints: Per window, whether it is the input of a recomputed part.
    """
    of_model = np.isin(windows.category, (PARAMETER, STATE)) & bool(settings.offload_param)
    saved = checkpoints & bool(settings.offload_checkpoint)
    rows = np.flatnonzero(of_model | saved)
    to_disk = np.where(saved[rows], settings.offload_checkpoint == "disk", settings.offload_param == "disk")
    moves = schedule(windows, rows, np.where(to_disk, DISK, CPU), clock, settings, on_demand=True)
    return _left(load, Elsewhere(windows, moves, settings), clock, 0.0, None)


class _Candidates(NamedTuple):
    """The windows that may be chosen.

    Attributes:
        usable: Whether each may be chosen.
        first: Whether it is chosen from the beginning.
        place: Where its tensor goes.
        slack: See ``_slack``.
    """

    usable: Array
    first: Array
    place: Array
    slack: Array


def automatic(
    windows: Windows, load: Array, target: int, clock: Clock, settings: OffloadSettings, *, must_wait: bool = False
) -> ChosenMoves:
    """Moves tensors until at most ``target`` bytes are live: without any waiting if possible, else with as little.

    Args:
        windows: All of them.
        load: Live bytes after each event, without moves.
        target: Bytes.
        clock: Times of events.
        settings: The requested settings.
        must_wait: Whether every plan needs waiting, as known from a higher target.
    """
    place = np.full(len(windows), CPU)
    slack = _slack(windows, np.arange(len(windows)), place, clock, settings)
    usable = (windows.device_bytes >= settings.min_bytes) & _is_of(windows, settings.offload_kinds)
    if clock.is_known and not settings.allow_exposed:
        usable &= slack > 0
    first = np.zeros(len(windows), bool)
    if settings.offload_param:  # they are not on the device before their first use
        of_model = np.isin(windows.category, (PARAMETER, STATE))
        place = np.where(of_model & (settings.offload_param == "disk"), DISK, place)
        by = np.lexsort((windows.begin, windows.tensor))
        first[by[np.append(True, np.diff(windows.tensor[by]) != 0)[: len(by)]]] = True
        first &= windows.category == PARAMETER
    candidates = _Candidates(usable, first, place, slack)
    if must_wait:
        return _with_waiting(windows, load, target, clock, settings, candidates)
    found = _without_waiting(windows, load, target, clock, settings, candidates)
    if found.is_enough or not clock.is_known:
        return found
    waiting = _with_waiting(windows, load, target, clock, settings, candidates)
    return waiting if waiting.is_enough or waiting.load.max() < found.load.max() else found


def _is_of(windows: Windows, kinds: tuple[str, ...]) -> Array:
    """Returns whether each window belongs to a tensor of these kinds."""
    categories = [CATEGORIES.index(kind) for kind in kinds]
    return np.where(windows.is_saved, "activation" in kinds, np.isin(windows.category, categories))


def _without_waiting(
    windows: Windows, load: Array, target: int, clock: Clock, settings: OffloadSettings, candidates: _Candidates
) -> ChosenMoves:
    """Chooses moves such that no copy is late and no room is missing; ``is_enough`` says whether that is possible."""
    usable, chosen, place, slack = (column.copy() for column in candidates)
    begin, end = windows.begin.copy(), windows.end.copy()
    moves = schedule(windows, np.flatnonzero(chosen), place[chosen], clock, settings)
    must_be_in_time = clock.is_known and not settings.allow_exposed
    for _ in range(_ROUNDS):
        left = load - _gone(moves, windows, len(load))
        added = _cover(windows, left, target, usable & ~chosen, begin, end, slack)
        to_disk, stay = overflow(Elsewhere(windows, moves, settings), clock)
        if not len(added) and not len(to_disk) and not len(stay):
            break
        chosen[added] = True
        place[to_disk] = DISK
        slack[to_disk] = _slack(windows, to_disk, place[to_disk], clock, settings)
        if must_be_in_time:
            stay = np.append(stay, to_disk[slack[to_disk] <= 0])
        usable[stay] = chosen[stay] = False
        rows = np.flatnonzero(chosen)
        copies = Copies.of(windows, rows, place[rows], clock, settings)
        if must_be_in_time:
            kept = copies.in_time(clock, slack[rows])
            usable[rows[~kept]] = chosen[rows[~kept]] = False
            copies = copies.only(kept)
        moves = copies.laid_out(clock)
        begin[moves.window], end[moves.window] = moves.out_at, moves.back_at
    return _left(load, without_overflow(Elsewhere(windows, moves, settings), clock), clock, 0.0, target)


def _with_waiting(
    windows: Windows, load: Array, target: int, clock: Clock, settings: OffloadSettings, candidates: _Candidates
) -> ChosenMoves:
    """Chooses moves as if copies took no time; the program then waits for room, and for late copies."""
    usable, chosen, place, slack = (column.copy() for column in candidates)
    # a copy begins after the event that makes its tensor idle
    begin, end = (
        np.minimum(windows.begin + 1, windows.end),
        windows.end,
    )
    best: ChosenMoves | None = None
    for _ in range(_ROUNDS):
        left = load - _within(begin[chosen], end[chosen], windows.device_bytes[chosen], len(load))
        chosen[_cover(windows, left, target, usable & ~chosen, begin, end, slack)] = True
        rows = np.flatnonzero(chosen)
        copies = Copies.of(windows, rows, place[rows], clock, settings)
        later, hold, stalled = copies.wait_for_room(clock, windows.device_bytes[rows], load - target)
        planned = Elsewhere(windows, copies.laid_out(later, hold=hold), settings)
        found = _left(load, without_overflow(planned, later), later, stalled, target)
        if best is None or found.load.max(initial=0) < best.load.max(initial=0):
            best = found
        to_disk, stay = overflow(planned, later)
        if best.is_enough or not (len(to_disk) or len(stay)):
            break
        place[to_disk] = DISK
        usable[stay] = chosen[stay] = False
    assert best is not None  # noqa: S101 - there is at least one round; for the type checker
    return best


def _slack(windows: Windows, rows: Array, place: Array, clock: Clock, settings: OffloadSettings) -> Array:
    """Returns, for each window, the idle seconds beyond its copy time."""
    away, back = copy_seconds(windows.copy_bytes[rows], place, settings)
    idle = clock.seconds[windows.end[rows]] - clock.seconds[windows.begin[rows]]
    left: Array = idle - away - np.where(windows.end[rows] >= len(clock.seconds) - 1, 0.0, back)
    return left


def _cover(windows: Windows, load: Array, target: int, usable: Array, begin: Array, end: Array, slack: Array) -> Array:
    """Returns windows that lower every peak to ``target`` if possible, assuming copies take no time."""
    if not len(load):
        return np.empty(0, np.int64)
    # Between two window boundaries, only the highest point counts.
    is_edge = np.zeros(len(load) + 1, bool)
    is_edge[0] = is_edge[begin] = is_edge[end] = True
    number = np.cumsum(is_edge) - 1
    edges = np.flatnonzero(is_edge[:-1])
    load = np.maximum.reduceat(load, edges)
    begin, end = number[begin], number[end]
    # At every peak, the tensors with the longest idle time beyond their copies come first.
    rows = np.flatnonzero(usable & (begin < end))
    rows = rows[np.lexsort((-windows.device_bytes[rows], -slack[rows]))]
    begin, end, size = begin[rows], end[rows], windows.device_bytes[rows]
    free, num_free = np.ones(len(rows), bool), _within(begin, end, np.ones(len(rows), np.int64), len(load))
    taken: list[Array] = []
    seen = 0
    while seen < _PEAKS:
        at = load.argmax()
        excess = int(load[at]) - target
        if excess <= 0:
            break
        if not num_free[at]:
            # Peaks above the highest one that can be lowered are given up at once.
            lost = load > max(int(load[num_free > 0].max(initial=_GIVEN_UP)), target)
            lost |= load == load[at]
            seen += len(np.unique(load[lost]))
            load[lost] = _GIVEN_UP
            continue
        seen += 1
        there = np.flatnonzero(free & (begin <= at) & (end > at))
        there = there[: int(np.searchsorted(np.cumsum(size[there]), excess)) + 1]
        free[there] = False
        taken.append(rows[there])
        load -= _within(begin[there], end[there], size[there], len(load))
        num_free -= _within(begin[there], end[there], np.ones(len(there), np.int64), len(load))
    return np.concatenate(taken) if taken else np.empty(0, np.int64)


def _within(begin: Array, end: Array, much: Array, n: int) -> Array:
    """Returns the total amount between ``begin`` and ``end`` at each of ``n`` positions."""
    change = np.zeros(n + 1, np.int64)
    np.add.at(change, begin, much)
    np.subtract.at(change, end, much)
    within: Array = np.cumsum(change[:-1])
    return within


def _gone(moves: Moves, windows: Windows, n: int) -> Array:
    """Returns the offloaded bytes after each event."""
    return _within(moves.out_at, moves.back_at, windows.device_bytes[moves.window], n)


def _left(load: Array, elsewhere: Elsewhere, clock: Clock, stalled: float, target: int | None) -> ChosenMoves:
    moves = elsewhere.moves
    # A tensor that is reloaded before its copy is complete frees no memory.
    elsewhere = elsewhere.only(moves.back_at > moves.out_at)
    return ChosenMoves(
        elsewhere.moves, load - _gone(elsewhere.moves, elsewhere.windows, len(load)), elsewhere, clock, stalled, target
    )
