"""The history of the CPU allocator, from the events of PyTorch's profiler, in the format of PyTorch's snapshots.

Other threads free memory that the recorded thread allocated, and the profiler does not see these frees. For example, a
gloo thread holds the buffers of its collective, and often the last reference to them. Such a block counts as freed when
the next allocation overlaps it, which is the latest possible time.

The history is a column of numbers until it is written. A dict for each event would be visited by each garbage
collection of the program.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from .cpu_passes import Event, TrainingPasses
from .cpu_stacks import NO_STACK, Call, CallStacks
from .live_blocks import LiveBlocks

_ROW = 4  # time in microseconds, address, bytes (negative: freed), number of the stack
_SPARE = 100_000  # entries beyond those to retain, until old rows are dropped
_ALLOCATED, _FREED = ("alloc",), ("free_requested", "free_completed")
# With a segment for each block: viewers that replay entries need each block inside an existing segment.
_WITH_SEGMENT = {_ALLOCATED: ("segment_alloc", "alloc"), _FREED: ("free_requested", "free_completed", "segment_free")}


class CpuHistory:
    """Allocations, frees and live blocks.

    Attributes:
        allocs, frees: Numbers since ``keep`` was called.
        unknown_frees: Frees of blocks whose allocation was not seen; they are omitted.
        unseen_frees: Frees inferred from the reuse of their memory.
        passes: The passes of the training, which know the stacks of repeated ones.
        num_taken, num_calls: Numbers of events and of Python calls in the last tree.
    """

    def __init__(self) -> None:
        self.allocs = self.frees = self.unknown_frees = self.unseen_frees = 0
        self._rows = array("q")
        self._num_entries = 0  # of the rows: one for an allocation, two for a free
        self._most = 0
        self._live = LiveBlocks()
        self._stacks = CallStacks()
        self.passes = TrainingPasses(self._stacks)
        self.num_taken = self.num_calls = 0

    def __len__(self) -> int:
        """Returns the number of retained entries."""
        return min(self._num_entries, self._most)

    def keep(self, most: int) -> None:
        """Retains entries from now on, at most the last ``most``. Earlier live blocks remain known."""
        self._most = most
        self._rows, self._num_entries = array("q"), 0
        self.allocs = self.frees = self.unknown_frees = self.unseen_frees = 0

    def take(self, tree: Iterable[Any], *, has_calls: bool = True) -> None:
        """Appends the allocations in the profiler's event tree, in order of time.

        Args:
            tree: The events.
            has_calls: Whether the profiler has reported Python calls.
        """
        found, self.num_calls, outermost = _allocations(tree, has_calls=has_calls)
        stacks = self.passes.stacks(found, self._stacks.number if has_calls else None)
        self.num_taken = len(found)
        if has_calls:
            self._stacks.ended(outermost)
        for (time_ns, _, addr, size, *_), stack in zip(found, stacks):
            self.add(time_ns // 1000, addr, size, stack)

    def add(self, time_us: int, addr: int, size: int, stack: int = NO_STACK) -> None:
        """Appends an allocation, or a free for a negative size."""
        if size > 0:
            for other, bytes_there in self._live.take(addr, size, stack):
                self.unseen_frees += 1
                self._append(time_us, other, -bytes_there, NO_STACK)
        elif not self._live.give_back(addr):
            self.unknown_frees += 1
            return
        self._append(time_us, addr, size, stack)

    def _append(self, time_us: int, addr: int, size: int, stack: int) -> None:
        if size > 0:
            self.allocs += 1
        else:
            self.frees += 1
        if self._most:
            self._rows.extend((time_us, addr, size, stack))
            self._num_entries += 1 if size > 0 else 2
            if self._num_entries > 2 * self._most + _SPARE:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drops the rows of which no entry is retained."""
        rows, row, unneeded = self._rows, 0, self._num_entries - self._most
        while (num_entries := 1 if rows[row + 2] > 0 else 2) <= unneeded:
            unneeded -= num_entries
            row += _ROW
        del rows[:row]
        self._num_entries = self._most + unneeded

    def entries(self, *, with_segments: bool = False) -> list[dict[str, Any]]:
        """Returns the retained entries, on request with a segment for each block."""
        found: list[dict[str, Any]] = []
        frames_of, unneeded = self._stacks.frames(), self._num_entries - len(self)
        values = iter(self._rows)
        for time_us, addr, size, stack in zip(values, values, values, values):
            actions: tuple[str, ...] = _ALLOCATED if size > 0 else _FREED
            if with_segments:
                actions = _WITH_SEGMENT[actions]
            if unneeded:
                num_entries = 1 if size > 0 else 2
                if num_entries <= unneeded:
                    unneeded -= num_entries
                    continue
                actions, unneeded = actions[unneeded:], 0
            size, frames = abs(size), frames_of[stack]
            found += [
                {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us, "frames": frames}
                for action in actions
            ]
        return found

    def content(self) -> dict[str, Any]:
        """Returns a snapshot; each allocation is a segment of one block."""
        frames_of = self._stacks.frames()
        segments = [_segment(addr, size, frames_of[stack]) for addr, size, stack in self._live]
        trace = self.entries(with_segments=True)
        return {"segments": segments, "device_traces": [trace], "allocator_settings": {}, "external_annotations": []}


def _allocations(tree: Iterable[Any], *, has_calls: bool) -> tuple[list[Event], int, Call | None]:
    """Returns the CPU's allocations in a tree in order of time, the number of calls, and the latest outermost call."""
    found: list[Event] = []
    num_calls = 0
    is_cpu: dict[Any, bool] = {}  # by device
    events, call = iter(tree), Call(None, None)
    above: list[tuple[Any, Call]] = []
    while True:
        for event in events:
            if has_calls:
                children = event.children
                if children:
                    num_calls += 1
                    above.append((events, call))
                    call.latest, call.latest_outer = event, Call(event, call if above[1:] else None)
                    events, call = iter(children), call.latest_outer
                    break
                if event.duration_time_ns:  # an allocation takes no time
                    num_calls += 1
                    call.latest = event
                    continue
            fields = event.extra_fields
            addr = getattr(fields, "ptr", 0)  # of allocations only; reading the event's kind takes 2 us more
            if not addr:
                continue
            device = fields.device
            if device not in is_cpu:
                is_cpu[device] = str(getattr(device, "type", device)) == "cpu"
            if is_cpu[device]:
                inside = call if above else None
                found.append((event.start_time_ns, len(found), int(addr), int(fields.alloc_size), inside, call.latest))
        else:
            if not above:
                found.sort()  # events of several threads by time, events of the same time in recorded order
                return found, num_calls, call.latest_outer
            events, call = above.pop()


def _segment(addr: int, size: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    block = {"address": addr, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames}
    return {
        "device": 0,
        "address": addr,
        "total_size": size,
        "allocated_size": size,
        "active_size": size,
        "requested_size": size,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": frames,
        "blocks": [block],
    }
