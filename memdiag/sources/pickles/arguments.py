"""Reads arguments of opcodes, compiled: counts and numbers in a pickle."""

from __future__ import annotations

from typing import Any

import numpy as np

from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array


@lean_part
def unsigned(buf: Array, at: int, width: int) -> int:
    """Returns the little-endian number of ``width`` bytes (8 at most); 8 bytes are a signed number."""
    value = np.int64(0)
    for i in range(width if width < 8 else 7):
        value |= np.int64(buf[at + i]) << 8 * i
    if width >= 8:
        value |= signed(buf[at + 7]) << np.int64(56)
    return int(value)


@lean_part
def signed(byte: int) -> Any:
    """Returns a byte as a number from -128 to 127, so that a number of 8 bytes which begins with it fits an int64."""
    return np.int64(byte) - (np.int64(256) if byte >= 128 else np.int64(0))


@lean_part
def line_end(buf: Array, at: int) -> int:
    """Returns the position of the newline at or after ``at``, or -1."""
    for i in range(at, len(buf)):
        if buf[i] == 10:
            return i
    return -1


@lean_part
def decimal(buf: Array, at: int, end: int) -> tuple[bool, int]:
    """Reads a short decimal number ("-12", "34L"); the flag says whether it is one and fits 18 digits."""
    if end > at and buf[end - 1] == 76:  # L
        end -= 1
    negative = end > at and buf[at] == 45
    if negative:
        at += 1
    if end <= at or end - at > 18:
        return False, 0
    value = np.int64(0)
    for i in range(at, end):
        if buf[i] < 48 or buf[i] > 57:
            return False, 0
        value = value * 10 + np.int64(buf[i] - 48)
    return True, int(-value if negative else value)
