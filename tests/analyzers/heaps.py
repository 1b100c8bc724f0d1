"""A small language for heaps: tests list an allocator's actions, and get the trace."""

from __future__ import annotations

import re

import numpy as np

from memdiag.trace import schema
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.layout import Layout
from memdiag.trace.raw import RawDevice
from memdiag.trace.snapshot_rows import completed
from memdiag.trace.stacks import Frame, Stacks

MIB = 1 << 20
PAGE = 2 * MIB


def _frame(where: str) -> Frame:
    if found := re.fullmatch(r"(\S+):(\d+) (\S+)", where):
        return Frame(found[1], int(found[2]), found[3])
    return Frame("train.py", int(re.sub(r"[^0-9]", "", where) or 1), where)


class Heap:
    """Entries of one device's trace, in order.

    Addresses named ``at`` are in MiB from 0; sizes are in bytes.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[str, int, int, int, tuple[Frame, ...]]] = []
        self.clock = 0
        self.times: list[int] = []

    def _add(self, action, addr, size, stream, where):
        names = where if isinstance(where, (list, tuple)) else [where] if where else []
        frames = tuple(_frame(name) for name in names)
        self.entries.append((action, addr, size, stream, frames))
        self.clock += 1
        self.times.append(self.clock)
        return len(self.entries) - 1

    def segment(self, at, size, stream=0, where="", expandable=False):
        """Reserves a segment (or pages) from the driver."""
        return self._add("segment_map" if expandable else "segment_alloc", int(at * MIB), size, stream, where)

    def release(self, at, size, stream=0, where="", expandable=False):
        """Releases the segment at an address."""
        return self._add("segment_unmap" if expandable else "segment_free", int(at * MIB), size, stream, where)

    def alloc(self, at, size, stream=0, where=""):
        """Allocates a tensor.

        ``where`` is "model.py:31 forward", or a name such as "f12" (function f12 at line 12 of train.py), or several of
        them, innermost first.
        """
        return self._add("alloc", int(at * MIB), size, stream, where)

    def free(self, at, size, stream=0, pending=False, where=""):
        """Frees the tensor at an address; with ``pending``, the free is not completed yet."""
        last = self._add("free_requested", int(at * MIB), size, stream, where)
        return last if pending else self._add("free_completed", int(at * MIB), size, stream, where)

    def complete(self, at, size, stream=0):
        """Completes a pending free."""
        return self._add("free_completed", int(at * MIB), size, stream, "")

    def oom(self, size, stream=0, device_free=-1, where=""):
        """Adds a failed request."""
        return self._add("oom", device_free, size, stream, where)

    def other(self, action, size=0):
        """Adds any other entry."""
        return self._add(action, 0, size, 0, "")

    def wait(self, microseconds):
        """Lets time pass."""
        self.clock += microseconds

    def checkerboard(self, survivors=8, temporary=30, kept=10, at=0):
        """Reserves a segment for each pair of a freed and a retained tensor, in MiB."""
        size = temporary + kept
        for i in range(survivors):
            start = at + i * 2 * size
            self.segment(start, size * MIB, where="f1")
            self.alloc(start, temporary * MIB, where="f1")
            self.alloc(start + temporary, kept * MIB, where="f2")
        for i in range(survivors):
            self.free(at + i * 2 * size, temporary * MIB)

    def held(self):
        """Returns the segments that are reserved at the end, by address.

        Each is (start, size, stream, small, expandable).
        """
        segments, pages = {}, {}
        for action, addr, size, stream, _ in self.entries:
            small = size == PAGE
            if action == "segment_alloc":
                segments[addr] = (addr, size, stream, small, False)
            elif action == "segment_free":
                segments.pop(addr, None)
            elif action == "segment_map":
                pages |= dict.fromkeys(range(addr, addr + size, PAGE), (stream, small))
            elif action == "segment_unmap":
                for page in range(addr, addr + size, PAGE):
                    pages.pop(page, None)
        rows = list(segments.values())
        for page in sorted(pages):
            if page - PAGE in pages:
                start, size, stream, small, _ = rows.pop()
                rows.append((start, size + PAGE, stream, small, True))
            else:
                rows.append((page, PAGE, *pages[page], True))
        return sorted(rows)

    def trace(self, backend="cuda", settings=None, layout=None, format="torch-snapshot", pools=None, timed=True, **raw):
        """Returns the trace of the listed actions."""
        stacks, ids = Stacks.from_lists([entry[4] for entry in self.entries])
        column = {
            name: [entry[i] for entry in self.entries] for i, name in enumerate(("action", "addr", "size", "stream"))
        }
        rows = list(zip(*self.held(), strict=True)) or [[]] * 5
        unknown, none = np.full(len(rows[0]), -1), np.zeros(len(rows[0]))
        segments = completed(
            schema.SEGMENTS,
            {
                "address": np.array(rows[0]),
                "total_size": np.array(rows[1]),
                "allocated_size": unknown,
                "active_size": unknown,
                "requested_size": unknown,
                "stream": np.array(rows[2]),
                "small": np.array(rows[3]),
                "expandable": np.array(rows[4]),
                "pool_major": none,
                "pool_minor": none,
                "stack": unknown,
            },
        )
        device = RawDevice(
            device=0,
            action=np.array([schema.ACTION_CODES[name] for name in column["action"]], np.int8),
            addr=np.array(column["addr"], np.int64),
            size=np.array(column["size"], np.int64),
            stream=np.array(column["stream"], np.int64),
            time_us=np.array(self.times, np.int64) if timed else None,
            stack=ids,
            pool=None if pools is None else np.array(pools, np.int64).reshape(-1, 2),
            **{"segments": None if pools is not None else segments, **raw},
        )
        return build_trace(
            RawTrace(
                path="heap",
                format=format,
                backend=backend,
                raws=[device],
                layout=layout or Layout(pad=32 if backend == "npu" else 0),
                stacks=stacks,
                settings=settings or {},
            )
        )
