"""Python stacks of the CPU's allocations, from the calls in the event tree of PyTorch's profiler.

Most calls allocate nothing, so a call is read only once an allocation inside it is found. Stacks with the same frames
are stored once: as a frame, and the stack of its callers.
"""

from __future__ import annotations

import os
import sys
from typing import Any

NO_STACK = -1
_UNKNOWN = -2

_Frames = list[dict[str, Any]]


class Call:
    """An event of the profiler that contains others.

    Args:
        event: The event.
        outer: The event that contains it.

    Attributes:
        stack: Number of its stack; ``_UNKNOWN`` before it is read.
        fields: Fields of the call in ``event`` or the nearest event around it; None before.
    """

    __slots__ = ("event", "fields", "outer", "stack")

    def __init__(self, event: Any, outer: Call | None) -> None:
        self.event, self.outer = event, outer
        self.fields: Any = None
        self.stack = _UNKNOWN


class Stacks:
    """The different stacks of a recording, by number."""

    def __init__(self) -> None:
        self._frames: _Frames = []
        self._numbers_of_frames: dict[tuple[str, int, str], int] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        # for each stack: its innermost frame, and the stack of the callers, whose number is smaller
        self._innermost: list[int] = []
        self._callers: list[int] = []

    def number(self, call: Call | None) -> int:
        """Returns the number of the stack at an event inside a call."""
        unknown = []
        while call is not None and call.stack == _UNKNOWN:
            unknown.append(call)
            call = call.outer
        stack, fields = NO_STACK, None
        if call is not None:
            stack, fields = call.stack, call.fields
        for each in reversed(unknown):
            own = each.event.extra_fields
            caller = getattr(own, "caller", None)
            if caller is not None:  # otherwise, it is no call
                stack = self._inside(stack, fields, self._frame(caller))
                fields = own
            each.stack, each.fields = stack, fields
        return stack

    def _inside(self, outer: int, fields: Any, frame: int) -> int:
        """Returns the number of a stack with one more frame.

        The profiler reports each function that runs when it starts as a call from its own line at that moment. If this
        function has called another function since then, that call has the present line, so the older line is omitted.
        """
        if outer != NO_STACK:
            older, newer = self._frames[self._innermost[outer]], self._frames[frame]
            if older["name"] == newer["name"] and older["filename"] == newer["filename"]:
                itself = getattr(fields, "callsite", None)  # C functions have none
                if itself is not None and self._frame(itself) == self._innermost[outer]:
                    outer = self._callers[outer]
        number = self._numbers.get((frame, outer))
        if number is None:
            number = self._numbers[frame, outer] = len(self._callers)
            self._innermost.append(frame)
            self._callers.append(outer)
        return number

    def _frame(self, caller: Any) -> int:
        try:
            key = (caller.file_name, caller.line_number, caller.function_name)
        except UnicodeDecodeError:  # the profiler keeps a pointer to the name, whose code object may be gone
            key = ("??", 0, "??")
        number = self._numbers_of_frames.get(key)
        if number is None:
            number = self._numbers_of_frames[key] = len(self._frames)
            self._frames.append({"filename": _absolute(key[0]), "line": key[1], "name": key[2]})
        return number

    def frames(self) -> list[_Frames]:
        """Returns the frames of each stack, innermost first; ``NO_STACK`` is an index too, without frames."""
        found: list[_Frames] = []
        for innermost, callers in zip(self._innermost, self._callers):
            outer = [] if callers == NO_STACK else found[callers]
            found.append([self._frames[innermost], *outer])
        found.append([])  # its index is NO_STACK
        return found


def _absolute(filename: str) -> str:
    """Returns the absolute path of a file: the profiler strips prefixes found in sys.path."""
    if os.path.isabs(filename) or filename.startswith("<"):
        return filename
    for folder in sys.path:
        path = os.path.join(os.path.abspath(folder), filename)
        if os.path.exists(path):
            return path
    return filename
