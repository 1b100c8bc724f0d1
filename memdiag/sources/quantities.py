"""Converts numbers in files to the integers that a trace uses: bytes and nanoseconds, without loss of precision.

A time in microseconds since 1970 with three decimals does not fit a float. It would be off by a quarter of a
microsecond, enough to swap a free and an allocation. So text is parsed as text.
"""

from __future__ import annotations

import re
from typing import Any

MOST_BYTES = 1 << 50  # more than any device holds: a damaged or hostile number
_MOST = 1 << 62
_DECIMAL = re.compile(r"([+-]?)([0-9]{1,19})(?:\.([0-9]{0,30}))?\Z")

_EXPONENT = re.compile(r"[+-]?[0-9](?:[.,]([0-9]{0,20}))?[eE][+]?([0-9]{1,3})\Z")

BYTE_UNITS = {"b": 1, "byte": 1, "bytes": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
TIME_UNITS = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000}


def whole(value: Any) -> int:
    """Returns a number of a file as an int of at most 62 bits.

    Raises:
        ValueError: It is not a number, has a fraction, or is absurdly large.
    """
    if isinstance(value, str):
        value = value.strip()
        number = int(value, 16) if value[:2] in ("0x", "0X") and len(value) <= 18 else scaled(value, 1)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"not a number: {str(value)[:40]!r}")
    else:
        number = int(value)  # nan and infinity raise
        if number != value:
            raise ValueError(f"not a whole number: {value!r}")
    if abs(number) > _MOST:
        raise ValueError("a number of more than 62 bits")
    return number


def scaled(text: str, unit: int) -> int:
    """Returns ``text`` (a decimal number) times ``unit``, rounded to an integer.

    Raises:
        ValueError: It is not a number, or is absurdly large.
    """
    match = _DECIMAL.match(text)
    if match:
        sign, digits, fraction = match.groups()
        number = int(digits) * unit
        if fraction:
            number += round(int(fraction) * unit / 10 ** len(fraction))
        number = -number if sign == "-" else number
    else:
        number = round(float(text) * unit)  # 1.7e15; nan and infinity raise
    if abs(number) > _MOST:
        raise ValueError("a number of more than 62 bits")
    return number


def rounding_of(text: str) -> int:
    """Returns the unit to which a number is rounded, such as 10**10 for 1.73641E+15 of a spreadsheet; 1 if to none."""
    match = _EXPONENT.match(text)
    return 1 if match is None else 10 ** max(int(match[2]) - len(match[1] or ""), 0)


def byte_count(value: Any) -> int:
    """Returns a size in bytes, negative for a release.

    Raises:
        ValueError: It is not a whole number, or exceeds 1 PiB.
    """
    number = whole(value)
    if abs(number) > MOST_BYTES:
        raise ValueError(f"{number} bytes is more than any device holds")
    return number
