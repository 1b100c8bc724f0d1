"""Formats bytes, counts and times for people, and parses sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from memdiag.errors import MemdiagError
from memdiag.text import phrase

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40

_SIZE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)(b?)\s*$", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def format_bytes(value: int | None) -> str:
    """Returns ``value`` bytes with a binary unit: ``1.50 GiB``, ``512 B``, ``-3.00 MiB``; "unknown" for None."""
    if value is None:
        return phrase("vocabulary.unknown")
    for limit, unit in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(value) >= limit:
            return f"{value / limit:.2f} {unit}"
    return f"{value} B"


def parse_bytes(text: str) -> int:
    """Returns the bytes that ``text`` names: ``64GiB``, ``512MB`` (decimal), ``20m`` (binary), ``4096``.

    Raises:
        MemdiagError: ``text`` is not a size.
    """
    match = _SIZE.match(text)
    if not match:
        raise MemdiagError(phrase("errors.not-size", text=f"{text!r}"), phrase("errors.not-size.hint"))
    number, prefix, binary, suffix = match.groups()
    base = 1000 if suffix and prefix and not binary else 1024
    factor: int = base ** _POWERS[prefix.lower()]
    return round(float(number) * factor)


def format_count(value: int) -> str:
    """Returns ``value`` with thousands separators: ``218,044``."""
    return f"{value:,}"


def fraction_up(value: float) -> str:
    """Returns ``value`` with two decimals, rounded up: "0.93"."""
    return f"{math.ceil(value * 100 - 1e-6) / 100:.2f}"


def format_us(value: int) -> str:
    """Returns a duration of ``value`` microseconds: ``1.2 s``, ``35 ms``, ``800 us``."""
    if abs(value) >= 1_000_000:
        return f"{value / 1e6:.1f} s"
    if abs(value) >= 1_000:
        return f"{value / 1e3:.0f} ms"
    return f"{value} us"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """Returns ``1 block``, ``3 blocks``, ``2,000 entries``."""
    word = noun if count == 1 else many or noun + "s"
    return f"{format_count(count)} {word}"


def format_ranges(numbers: Iterable[int], limit: int = 0) -> str:
    """Returns whole numbers as ranges, such as ``0-3, 7``, in at most ``limit`` characters (0: no limit)."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
    if not limit or len(shown) <= limit:
        return shown
    kept = shown[: limit - 3].rpartition(", ")[0]
    return f"{kept}, …" if kept else f"{shown[: limit - 1]}…"
