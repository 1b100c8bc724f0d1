"""The history of the CPU allocator, from the events of PyTorch's profiler, in the format of PyTorch's snapshots.

Other threads free memory that the recorded thread allocated, and the profiler does not see these frees. For example, a
gloo thread holds the buffers of its collective, and often the last reference to them. Such a block counts as freed when
the next allocation overlaps it, which is the latest possible time.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any

from .live_blocks import LiveBlocks

_Frames = list[dict[str, Any]]


class CpuHistory:
    """Allocations, frees and live blocks.

    Attributes:
        allocs, frees: Numbers since ``keep`` was called.
        unknown_frees: Frees of blocks whose allocation was not seen; they are omitted.
        unseen_frees: Frees inferred from the reuse of their memory.
    """

    def __init__(self) -> None:
        self.allocs = self.frees = self.unknown_frees = self.unseen_frees = 0
        self._entries: Any = deque(maxlen=0)
        self._live = LiveBlocks()
        self._frames: dict[tuple[str, int, str], dict[str, Any]] = {}

    def __len__(self) -> int:
        """Returns the number of retained entries."""
        return len(self._entries)

    def keep(self, most: int) -> None:
        """Retains entries from now on, at most the last ``most``. Earlier live blocks remain known."""
        self._entries = deque(maxlen=most)
        self.allocs = self.frees = self.unknown_frees = self.unseen_frees = 0

    def take(self, tree: Any) -> None:
        """Appends the allocations in the profiler's event tree, in order of time."""
        found: list[tuple[int, int, int, int, Any]] = []
        todo: list[tuple[Any, Any]] = [(event, None) for event in reversed(list(tree))]
        while todo:
            event, outer = todo.pop()
            children = event.children
            if children:
                outer = (event, outer)  # most calls allocate nothing: their frames are never requested
                todo += [(child, outer) for child in reversed(children)]
            # An allocation takes no time, and reading this is 20 times faster than reading the kind of the event.
            elif not event.duration_time_ns and event.tag.name == "Allocation":
                fields = event.extra_fields
                if str(fields.device.type if hasattr(fields.device, "type") else fields.device) == "cpu" and fields.ptr:
                    found.append((event.start_time_ns, len(found), int(fields.ptr), int(fields.alloc_size), outer))
        found.sort()  # events of several threads by time, events of the same time in recorded order
        lists: dict[int, _Frames] = {}
        for time_ns, _, addr, size, link in found:
            frames = lists.get(id(link))
            if frames is None:
                frames = lists[id(link)] = self._frames_of(_unfold(link))
            self.add(time_ns // 1000, addr, size, frames)

    def add(self, time_us: int, addr: int, size: int, frames: _Frames) -> None:
        """Appends an allocation, or a free for a negative size."""
        if size > 0:
            for other, bytes_there in self._live.take(addr, size, frames):
                self.unseen_frees += 1
                self._append_free(time_us, other, bytes_there, [])
            self.allocs += 1
            self._entries.append({"action": "alloc", **_entry(time_us, addr, size, frames)})
        elif self._live.give_back(addr):
            self._append_free(time_us, addr, -size, frames)
        else:
            self.unknown_frees += 1

    def _append_free(self, time_us: int, addr: int, size: int, frames: _Frames) -> None:
        self.frees += 1
        entry = _entry(time_us, addr, size, frames)
        self._entries.append({"action": "free_requested", **entry})
        self._entries.append({"action": "free_completed", **entry})

    def _frames_of(self, calls: list[Any]) -> _Frames:
        """Returns the frames of calls, innermost first.

        The profiler reports each function that runs when it starts as a call from its own line at that moment. If this
        function has called another function since then, that call has the present line, so the older line is omitted.
        """
        frames: _Frames = []
        for call in calls:
            fields = call.extra_fields
            frame, inner = self._frame(fields.caller), frames[-1] if frames else None
            is_same = inner and (inner["filename"], inner["name"]) == (frame["filename"], frame["name"])
            itself = getattr(fields, "callsite", None) if is_same else None  # C functions have none
            if itself is None or self._frame(itself) is not frame:
                frames.append(frame)
        return frames

    def _frame(self, caller: Any) -> dict[str, Any]:
        try:
            key = (caller.file_name, caller.line_number, caller.function_name)
        except UnicodeDecodeError:  # the profiler keeps a pointer to the name, whose code object may be gone
            key = ("??", 0, "??")
        frame = self._frames.get(key)
        if frame is None:
            frame = self._frames[key] = {"filename": _absolute(key[0]), "line": key[1], "name": key[2]}
        return frame

    def content(self) -> dict[str, Any]:
        """Returns a snapshot; each allocation is a segment of one block."""
        segments = [_segment(addr, size, frames) for addr, size, frames in self._live]
        trace = _with_segments(self._entries)
        return {"segments": segments, "device_traces": [trace], "allocator_settings": {}, "external_annotations": []}


def _entry(time_us: int, addr: int, size: int, frames: _Frames) -> dict[str, Any]:
    return {"addr": addr, "size": size, "stream": 0, "time_us": time_us, "frames": frames}


def _with_segments(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns entries with a segment for each block.

    Viewers that replay them need each block inside an existing segment.
    """
    result = []
    for entry in entries:
        if entry["action"] == "alloc":
            result.append({**entry, "action": "segment_alloc"})
        result.append(entry)
        if entry["action"] == "free_completed":
            result.append({**entry, "action": "segment_free"})
    return result


def _absolute(filename: str) -> str:
    """Returns the absolute path of a file: the profiler strips prefixes found in sys.path."""
    if os.path.isabs(filename) or filename.startswith("<"):
        return filename
    for folder in sys.path:
        path = os.path.join(os.path.abspath(folder), filename)
        if os.path.exists(path):
            return path
    return filename


def _unfold(link: Any) -> list[Any]:
    """Returns the calls of Python of a chain of events, innermost first."""
    calls = []
    while link is not None:
        if link[0].tag.name in {"PyCall", "PyCCall"}:
            calls.append(link[0])
        link = link[1]
    return calls


def _segment(addr: int, size: int, frames: _Frames) -> dict[str, Any]:
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
