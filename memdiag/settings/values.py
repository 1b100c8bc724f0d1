"""Checks one value of one key: whether the parser accepts it, how it reads it, and the probable intention."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from difflib import get_close_matches

from memdiag.settings.divisions import check_divisions
from memdiag.settings.model import Key, Version, type_words
from memdiag.settings.numbers import SIZE_MAX, is_power_of_two, to_double, to_int, to_size
from memdiag.settings.parsers import is_shared, smallest_split
from memdiag.settings.problem import Problem
from memdiag.text import phrase

_TRUE = {"true", "1", "yes", "on", "t", "y", "enable", "enabled"}
_FALSE = {"false", "0", "no", "off", "f", "n", "none", "disable", "disabled"}
_MEANT = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)")
_IN_MIB = {
    "": 1.0,
    "m": 1.0,
    "mb": 1.0,
    "mib": 1.0,
    "g": 1024.0,
    "gb": 1024.0,
    "gib": 1024.0,
    "t": 1048576.0,
    "tb": 1048576.0,
    "tib": 1048576.0,
    "k": 1 / 1024,
    "kb": 1 / 1024,
    "kib": 1 / 1024,
    "b": 1 / 1048576,
}
_AS_GOOD_AS_NONE = 1 << 40  # MiB: more than the memory of any device


@dataclass(frozen=True, slots=True)
class ValueContext:
    """Context for reading a value, besides the key.

    Attributes:
        backend: Backend of the parser.
        version: Version of the parser.
        segment: large_segment_size_mb, as the parser read it.
    """

    backend: str
    version: Version
    segment: int = 20


def check_value(key: Key, value: str | None, place: ValueContext) -> list[Problem]:
    """Returns the problems with ``value`` for ``key``; empty if it is read as written."""
    if value is None or value == "":
        return [
            Problem(
                "MD652",
                phrase("conf_values.none", key=key.name, range=key.range),
                "critical",
                phrase("conf.ends"),
                None,
            )
        ]
    if key.kind == "bool":
        return _check_bool(key, value)
    if key.kind == "word":
        return _check_word(key, value)
    if key.kind == "divisions":
        return check_divisions(key, value, place.backend, place.version)
    if key.kind == "fraction":
        return _check_fraction(key, value)
    return _check_whole(key, value, place)


def _check_bool(key: Key, value: str) -> list[Problem]:
    if value in (key.words or ("True", "False")):
        return []
    low = value.lower().strip("'\"")
    close = get_close_matches(low, ["true", "false"], 1, 0.6)
    meant = "True" if low in _TRUE else "False" if low in _FALSE else close[0].capitalize() if close else None
    right = meant.lower() if meant and key.words else meant
    if low in _TRUE | _FALSE:
        title = phrase("conf_values.bool", key=key.name, value=value, one="True", other="False")
        if key.words:
            title = phrase("conf_values.bool.many", key=key.name, value=value, words=", ".join(key.words))
        return [Problem("MD657", title, "critical", phrase("conf.ends"), right)]
    return [_out_of_range(key, value, right)]


def _check_word(key: Key, value: str) -> list[Problem]:
    if not key.words or value in key.words:
        return []
    by_lower = {word.lower(): word for word in key.words}
    close = get_close_matches(value.lower(), list(by_lower), 1, 0.6)
    return [_out_of_range(key, value, by_lower[close[0]] if close else None)]


def _check_fraction(key: Key, value: str) -> list[Problem]:
    read = to_double(value)
    meant = re.match(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", value)
    if read is None:
        return [_out_of_range(key, value, None)]
    problems = []
    if not meant or meant.group() != value:
        shown = f"{read:g}"
        problems.append(_read_as(key, value, shown, shown if math.isfinite(read) else None))
    low, high = key.lowest, key.highest
    is_low = low is not None and not (read > low or (read == low and not key.is_open))
    is_high = high is not None and not (read < high or (read == high and not key.is_open))
    if is_low or is_high:
        percent = 10 <= read < 100 and high == 1  # 80 means 80 %; 1.5 is ambiguous
        nearest = (
            f"{read / 100:g}" if percent else "1.0" if is_high and not key.is_open and not math.isnan(read) else None
        )
        problems.append(_out_of_range(key, value, nearest))
    return problems


def _check_whole(key: Key, value: str, place: ValueContext) -> list[Problem]:
    read = to_size(value) if is_shared(place.backend, place.version) else to_int(value)
    meant = _meant(key, value)
    lowest, highest = _limits(key, place)
    nearest = _nearest(key, meant, lowest, highest)
    if key.is_digits and not re.fullmatch("[0-9]+", value):
        return [_out_of_range(key, value, nearest, lowest)]
    if read is None:
        return [_out_of_range(key, value, nearest, lowest)]
    if key.name == "base_addr_aligned_kb" and len(str(read)) != len(value):
        return [_out_of_range(key, value, str(read) if read <= (highest or read) else None)]
    problems = []
    if not re.fullmatch(r"\+?[0-9]+", value):
        problems.append(
            _read_as(key, value, _shown(read), nearest if read < _AS_GOOD_AS_NONE else None, is_same=meant == read)
        )
    if read < lowest or (highest is not None and read > highest):
        problems.append(_out_of_range(key, value, nearest, lowest))
    elif key.is_power_of_two and not is_power_of_two(read):
        problems.append(_out_of_range(key, value, str(1 << (read.bit_length() - 1))))
    return problems


def _limits(key: Key, place: ValueContext) -> tuple[int, int | None]:
    lowest = int(key.lowest or 0)
    if key.at_least_segment:
        lowest = max(place.segment if is_shared(place.backend, place.version) else 0, 0) or smallest_split(
            place.backend, place.version
        )
        if smallest_split(place.backend, place.version) > 20:
            lowest = 21
    if key.name == "pinned_reserve_segment_size_mb" and place.backend == "npu":
        lowest = 0
    return lowest, None if key.highest is None else int(key.highest)


def _meant(key: Key, value: str) -> float | None:
    """Returns the number meant by ``64MB``, ``1GB`` or ``1e3``, in the unit of the key, or None if unknown."""
    match = _MEANT.fullmatch(value)
    if not match:
        return None
    factor = _IN_MIB.get(match.group(2).lower())
    if key.kind == "count":
        factor = 1.0 if not match.group(2) else None
    if key.kind == "kib" and factor is not None:
        factor = 1.0 if not match.group(2) else factor * 1024
    number = float(match.group(1))
    return None if factor is None or not math.isfinite(number) else number * factor


def _nearest(key: Key, meant: float | None, lowest: int, highest: int | None) -> str | None:
    """Returns the allowed number nearest to the intended one.

    None means to remove the key, because the value expresses "no limit" or nothing.
    """
    if meant is None or meant < 0 or meant > _AS_GOOD_AS_NONE:
        return None
    number = max(int(meant), lowest)
    if highest is not None:
        number = min(number, highest)
    if key.is_power_of_two and number:
        number = 1 << (number.bit_length() - 1)
    return str(number)


def _shown(read: int) -> str:
    if read < _AS_GOOD_AS_NONE:
        return str(read)
    return (
        phrase("conf_values.read.no-limit", number=read)
        if read > SIZE_MAX // 2
        else phrase("conf_values.read.huge", number=read)
    )


def _read_as(key: Key, value: str, read: str, right: str | None, *, is_same: bool = False) -> Problem:
    why = phrase("conf_values.read.same") if is_same else phrase("conf_values.read.begin")
    if value.startswith("-"):
        why = phrase("conf_values.read.wraps")
    title = phrase("conf_values.read", key=key.name, value=value, read=read)
    return Problem("MD653", title, "info" if is_same else "warning", why, right)


def _out_of_range(key: Key, value: str, right: str | None, lowest: int = 0) -> Problem:
    takes = phrase("conf_values.range.lowest", lowest=lowest) if key.at_least_segment and lowest else key.range
    title = phrase("conf_values.range", key=key.name, value=value, range=takes)
    return Problem("MD652", title, "critical", phrase("conf_values.range.why", kind=type_words(key.kind)), right)
