"""Stacks for repeated passes, without PyTorch's slow reports of Python calls.

A training repeats itself: each step runs the same forward, backward and optimizer pass. A pass begins at a mark of the
recorder (forward begins, forward ends, ...) and ends at the next one. Two passes are equal if they begin at the same
place in the program, with the same callers, and allocate and free the same sizes in the same order. An equal pass has
the stacks of the earlier one, so once nearly all events belong to passes that were seen before, the profiler no longer
needs to report each call.

Batches of another length have other sizes. A pass of at least 16 events is therefore also equal to an earlier one if it
allocates and frees in the same order, and each free frees the same tensor of the pass, or one that is older.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from math import inf
from typing import Any

from ..marks import BACKWARD, FORWARD, OPTIMIZER
from .cpu_stacks import NO_STACK, Call, CallStacks

# nanoseconds, number, address, bytes (negative: freed), the call around it, and the latest call before it in that one
Event = tuple[int, int, int, int, "Call | None", Any]
_INSIDE = (FORWARD, BACKWARD, OPTIMIZER)  # the line of such a mark calls the code that follows
_MOST_STORED = 1_000_000  # events of different passes: 8 MB
_ADDED = 32  # events that need as much memory as a pass without any
_MOST_PLACES = 20_000
_MOST_CHANGES = 3  # of the stacks of a pass, until it has none that another one may use
_TRIES, _PASSES_PER_TRY = 8, 100  # that calls are reported at a place again, and for so many known passes once more
_MOST_CALLERS = 100  # that are compared
_LEAST_SIMILAR = 16  # events of a pass whose sizes differ


class PassStart:
    """Where a pass begins: the kind of its mark, and the callers.

    Attributes:
        stack: Number of the stack there, or ``NO_STACK`` if the pass is not called from there.
        passes: For each known pass, the numbers of the stacks of its events, and how often they have changed.
        is_unknown: Whether the last pass was not known, and calls may be reported for the next one.
        num_known, num_tries: Number of passes that were known, and of those begun after an unknown one.
    """

    __slots__ = ("is_unknown", "num_known", "num_tries", "passes", "stack")

    def __init__(self, stack: int) -> None:
        self.stack, self.is_unknown = stack, False
        self.num_known = self.num_tries = 0
        self.passes: dict[bytes, tuple[array[int], int]] = {}


class TrainingPasses:
    """All passes of the recorded thread.

    Attributes:
        share: Of the later half of the last events, the share whose stacks were known from earlier passes; None without
            events.
        is_new: Whether a pass has begun at a place where none had begun before, or where the last one was not known,
            since the last call of ``stacks``.
        goes_on_new: Whether the pass that goes on has begun at such a place.
        is_try: Whether it has begun at a known place.
        num_found: Number of events whose stacks are those of an earlier pass.
        num_outer: Number of events that only have the stack at the beginning of their pass.
    """

    def __init__(self, stacks: CallStacks) -> None:
        self.share: float | None = None
        self.is_new = self.goes_on_new = self.is_try = False
        self.num_found = self.num_outer = 0
        self._stacks = stacks
        self._places: dict[tuple[Any, ...], PassStart] = {}
        self._begun: list[tuple[int, PassStart | None]] = []
        self._place: PassStart | None = None  # of the pass that goes on
        self._room = _MOST_STORED

    def begin(self, kind: int, frame: Any) -> int:
        """Ends a pass and begins another one, at a mark of a kind in a frame; returns the time in nanoseconds.

        The profiler reports each call that is made here, so there are few.
        """
        key: list[Any] = [kind]
        caller, left = frame, _MOST_CALLERS
        while caller is not None and left:
            left -= 1
            code = caller.f_code
            key += (code.co_filename, code.co_name, code.co_firstlineno, caller.f_lasti)
            caller = caller.f_back
        found = tuple(key)
        try:
            known = self._places[found]
            place: PassStart | None = known
            self.goes_on_new = self.is_try = known.is_unknown
            if known.is_unknown:
                known.num_tries += 1
                known.is_unknown = False
        except KeyError:
            place, self.goes_on_new, self.is_try = None, True, False
            if len(self._places) < _MOST_PLACES:
                place = PassStart(self._stacks.here(frame) if kind in _INSIDE else NO_STACK)
                self._places[found] = place
        self.is_new |= self.goes_on_new
        now = time.time_ns()
        self._begun += ((now, place),)
        return now

    def stacks(self, events: Sequence[Event], number: Callable[[Call | None, Any], int] | None) -> array[int]:
        """Returns the number of the stack of each event.

        Args:
            events: Events since the last call, in order of time.
            number: Returns the number of the stack of an event; None if the profiler has not reported calls.
        """
        found, start, known, half = array("q"), 0, 0, len(events) // 2
        begun, self._begun, self.is_new = self._begun, [], False
        for time_ns, next_place in [*begun, (inf, None)]:
            end = bisect_left(events, (time_ns,), start)
            if end > start:
                part = events[start:end]
                if number is None:
                    stacks, is_known = self._found(part)
                else:
                    stacks = array("q", [number(event[4], event[5]) for event in part])
                    is_known = self._learn(part, stacks)
                if (place := self._place) is not None:
                    place.num_known += is_known
                    most = _TRIES + place.num_known // _PASSES_PER_TRY
                    place.is_unknown = not is_known and place.num_tries < most
                found += stacks
                known += max(0, end - max(start, half)) if is_known else 0
                start = end
            if time_ns != inf:
                self._place = next_place
        self.share = known / (len(events) - half) if events else None
        return found

    def _found(self, events: Sequence[Event]) -> tuple[array[int], bool]:
        """Returns the stacks of an earlier pass, and whether there was one."""
        place = self._place
        for name in _names(events) if place is not None else ():
            stacks, changes = place.passes.get(name, (None, 0))  # type: ignore[union-attr]
            if stacks is not None and changes < _MOST_CHANGES:
                self.num_found += len(events)
                return stacks, True
        outer = NO_STACK if place is None else place.stack
        if outer != NO_STACK:
            self.num_outer += len(events)
        return array("q", [outer]) * len(events), False

    def _learn(self, events: Sequence[Event], stacks: array[int]) -> bool:
        """Remembers the stacks of a pass; returns whether they were known."""
        if self._place is None:
            return False
        passes = self._place.passes
        for name in _names(events):
            known, changes = passes.get(name, (None, -1))
            if known == stacks and changes < _MOST_CHANGES:
                return True
            if known is None:
                if self._room < len(events) + _ADDED:
                    return False
                self._room -= len(events) + _ADDED
            passes[name] = stacks, min(changes + 1, _MOST_CHANGES)
        return False


def _names(events: Sequence[Event]) -> Iterator[bytes]:
    """Yields the names of a pass: by the order of its sizes and, if it is long enough, by the order of its blocks."""
    sizes = array("q", [event[3] for event in events])
    yield _digest(sizes)
    if len(sizes) < _LEAST_SIMILAR:
        return
    order = array("q")
    blocks: dict[int, int] = {}  # by address: number of the event that allocated it
    for number, (_, _, addr, size, *_) in enumerate(events):
        if size > 0:
            blocks[addr] = number
            order.append(-1)
        else:
            order.append(blocks.pop(addr, -2))  # a free of a block that is older than the pass
    yield _digest(order)


def _digest(values: array[int]) -> bytes:
    return blake2b(values.tobytes(), digest_size=16).digest()
