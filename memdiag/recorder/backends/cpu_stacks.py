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
_OWN_CODE = __file__.rpartition("recorder")[0]

_Frames = list[dict[str, Any]]


class Call:
    """An event of the profiler that contains others.

    Args:
        event: The event.
        outer: The event that contains it.

    Attributes:
        stack: Number of its stack; ``_UNKNOWN`` before it is read.
        fields: Fields of the call in ``event`` or the nearest event around it; None before.
        latest: The latest call that it has made so far.
        latest_outer: The latest call with events inside.
        before, inside: A call that it has made, and the number of the stack of events after that.
    """

    __slots__ = ("before", "event", "fields", "inside", "latest", "latest_outer", "outer", "stack")

    def __init__(self, event: Any, outer: Call | None) -> None:
        self.event, self.outer = event, outer
        self.fields: Any = None
        self.stack = self.inside = _UNKNOWN
        self.latest = self.before = None
        self.latest_outer: Call | None = None


class CallStacks:
    """The different stacks of a recording, by number."""

    def __init__(self) -> None:
        self._frames: _Frames = []
        self._numbers_of_frames: dict[tuple[str, int, str], int] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        # for each stack: its innermost frame, and the stack of the callers, whose number is smaller
        self._innermost: list[int] = []
        self._callers: list[int] = []
        self._running: dict[tuple[str, str], int] = {}  # by function: its frame when the profiler stopped last

    def number(self, call: Call | None, before: Any = None) -> int:
        """Returns the number of the stack at an event.

        Args:
            call: The call that contains it.
            before: The latest call before it in ``call``.
        """
        stack = self._number(call)
        if call is None:
            return stack
        if call.before is not before or call.inside == _UNKNOWN:
            call.before, call.inside = before, self._inside_of(call, stack, before)
        return call.inside

    def _inside_of(self, call: Call, stack: int, before: Any) -> int:
        """Returns the stack of an event directly inside a call: an operator such as + is no call.

        Its line is the one of the function's latest call. Without one, it is the line at which the function began.
        """
        itself = getattr(call.fields, "callsite", None)  # C functions have none
        if itself is None:
            return stack
        frame = self._frame(itself)
        function = self._function(frame)
        latest = self._line(before, function)
        if latest is None and function in self._running:
            latest = self._running[function]
        self._running.pop(function, None)
        return self._inside(stack, call.fields, frame if latest is None else latest)

    def _line(self, call: Any, function: tuple[str, str]) -> int | None:
        """Returns the frame of a function with the line of a call that it made, or None."""
        caller = getattr(call.extra_fields, "caller", None) if call is not None else None
        frame = None if caller is None else self._frame(caller)
        return frame if frame is not None and self._function(frame) == function else None

    def ended(self, call: Call | None) -> None:
        """Remembers the lines of the functions that run when the profiler stops, for its next tree.

        At its start, the profiler sees them at the line at which it was started. ``call`` is the outermost one.
        """
        before, self._running = self._running, {}
        while call is not None:
            self._number(call)
            itself = getattr(call.fields, "callsite", None)
            if itself is not None:
                function = self._function(self._frame(itself))
                line = self._line(call.latest, function)
                line = before.get(function) if line is None else line
                if line is not None:
                    self._running[function] = line
            call = call.latest_outer

    def _function(self, frame: int) -> tuple[str, str]:
        return self._frames[frame]["filename"], self._frames[frame]["name"]

    def _number(self, call: Call | None) -> int:
        """Returns the number of the stack of a call."""
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

    def here(self, frame: Any) -> int:
        """Returns the number of the stack of a running function, without functions of memdiag."""
        stack, lines = NO_STACK, []
        while frame is not None:
            if not frame.f_code.co_filename.startswith(_OWN_CODE):
                lines.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        for key in reversed(lines):
            stack = self._add(self._frame_number(key), stack)
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
        return self._add(frame, outer)

    def _add(self, frame: int, outer: int) -> int:
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
        return self._frame_number(key)

    def _frame_number(self, key: tuple[str, int, str]) -> int:
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
