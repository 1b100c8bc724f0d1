"""Frames in the text of Python tracebacks, as ``traceback.format_stack`` writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_FRAME = re.compile(r'File "([^"\n]{1,2000})", line ([0-9]{1,9}), in ([^\n]{1,500})')


class TracebackFrame(NamedTuple):
    """One frame of a traceback: file, line and function name."""

    filename: str
    line: int
    name: str


def frames_in(text: str) -> tuple[TracebackFrame, ...]:
    """Returns the frames in a text, innermost first, unlike in the text itself."""
    found = [TracebackFrame(file, int(line), name) for file, line, name in _FRAME.findall(text)]
    return tuple(reversed(found))


def lines_of(frames: Sequence[tuple[str, int, str]]) -> list[str]:
    """Returns frames, innermost first, as lines of a traceback: the inverse of ``frames_in``."""
    return [f'  File "{filename}", line {line}, in {name}\n' for filename, line, name in reversed(frames)]
