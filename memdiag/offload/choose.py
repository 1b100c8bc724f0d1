"""Which tensors move: all of a kind (forced), or as many as it takes until the device's bytes fit (automatic).

The automatic strategy looks at the highest point of what is live, and takes out of it what is idle longest beyond the
time that its copies take; then at the next highest, until all are low enough. What the links cannot carry in time is
not moved, unless waiting is allowed. What the host has no room for goes to disk, and the copies are laid out anew with
the rates of the disk (overflow.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.offload.clock import Clock
from memdiag.offload.elsewhere import Elsewhere
from memdiag.offload.overflow import overflow, without_overflow
from memdiag.offload.schedule import CPU, DISK, Copies, Moves, copy_seconds, schedule
from memdiag.offload.settings import OffloadSettings
from memdiag.offload.windows import PARAMETER, STATE, Windows
from memdiag.trace.schema import CATEGORIES
from memdiag.trace.table import Array

_ROUNDS = 12  # of choosing and laying out on the links
_PEAKS = 400  # looked at in one round
_GIVEN_UP = -(1 << 62)  # bytes at a peak that nothing brings down


@dataclass(frozen=True)
class Chosen:
    """Moves, and what they leave.

    Attributes:
        moves: The moves.
        load: Live bytes of the device after each event.
        elsewhere: What they bring to the host and to disk.
        clock: When events happen with that: later, where the program waits for room.
        stall_seconds: That it waits for room, over the whole trace.
        target: What ``load`` is to be at most; None: nothing is asked for.
    """

    moves: Moves
    load: Array
    elsewhere: Elsewhere
    clock: Clock
    stall_seconds: float
    target: int | None

    @property
    def host_bytes(self) -> int:
        """Held by the pinned pool at most."""
        return self.elsewhere.host[0]

    @property
    def host_used_bytes(self) -> int:
        """Used of the pinned pool at most."""
        return self.elsewhere.host[1]

    @property
    def disk_bytes(self) -> int:
        """On disk at most."""
        return self.elsewhere.disk

    @property
    def is_enough(self) -> bool:
        """``load`` is nowhere above what was asked for, and the host and the disk have room."""
        return (self.target is None or int(self.load.max(initial=0)) <= self.target) and self.elsewhere.has_room


def forced(windows: Windows, load: Array, clock: Clock, settings: OffloadSettings, checkpoints: Array) -> Chosen:
    """Moves what ``offload_param`` and ``offload_checkpoint`` name, whenever it is not needed.

    Args:
        windows: All of them.
        load: Live bytes after each event, with nothing moved.
        clock: Times of events.
        settings: What was asked for.
        checkpoints: Per window: it is the input of a part that is recomputed.
    """
    of_model = np.isin(windows.category, (PARAMETER, STATE)) & bool(settings.offload_param)
    saved = checkpoints & bool(settings.offload_checkpoint)
    rows = np.flatnonzero(of_model | saved)
    to_disk = np.where(saved[rows], settings.offload_checkpoint == "disk", settings.offload_param == "disk")
    moves = schedule(windows, rows, np.where(to_disk, DISK, CPU), clock, settings, on_demand=True)
    return _left(load, Elsewhere(windows, moves, settings), clock, 0.0, None)


def automatic(
    windows: Windows, load: Array, target: int, clock: Clock, settings: OffloadSettings, *, must_wait: bool = False
) -> Chosen:
    """Moves as much as it takes to have at most ``target`` live bytes: without any waiting if that is possible, else with as little.

    Args:
        windows: All of them.
        load: Live bytes after each event, with nothing moved.
        target: Bytes.
        clock: Times of events.
        settings: What was asked for.
        must_wait: There is no plan without waiting, as is known from a higher target.
    """
    place = np.full(len(windows), CPU)
    slack = _slack(windows, np.arange(len(windows)), place, clock, settings)
    usable = (windows.device_bytes >= settings.min_bytes) & _is_of(windows, settings.offload_kinds)
    if clock.is_known and not settings.allow_exposed:
        usable &= slack > 0
    first = np.zeros(len(windows), bool)
    if settings.offload_param:  # they start elsewhere: until their first use they are not on the device
        of_model = np.isin(windows.category, (PARAMETER, STATE))
        place = np.where(of_model & (settings.offload_param == "disk"), DISK, place)
        by = np.lexsort((windows.begin, windows.tensor))
        first[by[np.append(True, np.diff(windows.tensor[by]) != 0)[: len(by)]]] = True
        first &= windows.category == PARAMETER
    if must_wait:
        return _with_waiting(windows, load, target, clock, settings, usable, first, place, slack)
    found = _without_waiting(windows, load, target, clock, settings, usable, first, place, slack)
    if found.is_enough or not clock.is_known:
        return found
    waiting = _with_waiting(windows, load, target, clock, settings, usable, first, place, slack)
    return waiting if waiting.is_enough or waiting.load.max() < found.load.max() else found


def _is_of(windows: Windows, kinds: tuple[str, ...]) -> Array:
    """Returns whether each window is of a tensor of these kinds."""
    categories = [CATEGORIES.index(kind) for kind in kinds]
    return np.where(windows.is_saved, "activation" in kinds, np.isin(windows.category, categories))


def _without_waiting(
    windows: Windows,
    load: Array,
    target: int,
    clock: Clock,
    settings: OffloadSettings,
    usable: Array,
    first: Array,
    place: Array,
    slack: Array,
) -> Chosen:
    """Chooses so that no copy is late and no room is missing; ``is_enough`` says whether there is such a choice."""
    usable, chosen, place, slack = usable.copy(), first.copy(), place.copy(), slack.copy()
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
    windows: Windows,
    load: Array,
    target: int,
    clock: Clock,
    settings: OffloadSettings,
    usable: Array,
    first: Array,
    place: Array,
    slack: Array,
) -> Chosen:
    """Chooses what would do if copies took no time; the program waits wherever they do: for room, and for what is late."""
    usable, chosen, place = usable.copy(), first.copy(), place.copy()
    begin, end = (
        np.minimum(windows.begin + 1, windows.end),
        windows.end,
    )  # a copy begins after the event that makes its tensor idle
    best: Chosen | None = None
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
    assert best is not None  # noqa: S101 - there is one round at least; for the type checker
    return best


def _slack(windows: Windows, rows: Array, place: Array, clock: Clock, settings: OffloadSettings) -> Array:
    """Returns for how many seconds each window is idle beyond the time that its copies take."""
    away, back = copy_seconds(windows.copy_bytes[rows], place, settings)
    idle = clock.seconds[windows.end[rows]] - clock.seconds[windows.begin[rows]]
    left: Array = idle - away - np.where(windows.end[rows] >= len(clock.seconds) - 1, 0.0, back)
    return left


def _cover(windows: Windows, load: Array, target: int, usable: Array, begin: Array, end: Array, slack: Array) -> Array:
    """Returns windows that bring every peak down to ``target``, as far as there are any, on the assumption that copies take no time."""
    if not len(load):
        return np.empty(0, np.int64)
    # Between two places at which a window begins or ends only the highest point counts.
    is_edge = np.zeros(len(load) + 1, bool)
    is_edge[0] = is_edge[begin] = is_edge[end] = True
    number = np.cumsum(is_edge) - 1
    edges = np.flatnonzero(is_edge[:-1])
    load = np.maximum.reduceat(load, edges)
    begin, end = number[begin], number[end]
    # What is idle longest beyond its copies comes first, at every peak.
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
            # All that is higher than any peak that can be brought down is given up at once.
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
    """Returns how much is between ``begin`` and ``end`` at each of ``n`` places, in all."""
    change = np.zeros(n + 1, np.int64)
    np.add.at(change, begin, much)
    np.subtract.at(change, end, much)
    within: Array = np.cumsum(change[:-1])
    return within


def _gone(moves: Moves, windows: Windows, n: int) -> Array:
    """Returns the bytes that are away after each event."""
    return _within(moves.out_at, moves.back_at, windows.device_bytes[moves.window], n)


def _left(load: Array, elsewhere: Elsewhere, clock: Clock, stalled: float, target: int | None) -> Chosen:
    moves = elsewhere.moves
    elsewhere = elsewhere.only(moves.back_at > moves.out_at)  # what is back before it has gone frees nothing
    return Chosen(
        elsewhere.moves, load - _gone(elsewhere.moves, elsewhere.windows, len(load)), elsewhere, clock, stalled, target
    )
