"""The value of roundup_power2_divisions: one number, or a list of sizes and numbers, which may have gaps.

Entry k of 16 covers requests of 2^k to 2^(k+1) MiB; the first also covers all smaller requests, the last all larger
ones. In a list, the first size sets all entries up to its own, and every other size only its own entry. Requests of an
unset entry are not rounded.
"""

from __future__ import annotations

import re

from memdiag.settings.model import NEWEST, Key, Version, type_words
from memdiag.settings.numbers import is_power_of_two, to_size
from memdiag.settings.parsers import MAX_DIVISIONS, is_shared, parse, parse_common, tokenize
from memdiag.settings.problem import Problem
from memdiag.text import joined, phrase

_LAST = 1 << (MAX_DIVISIONS - 1)  # MiB


def check_divisions(key: Key, value: str, backend: str, version: Version) -> list[Problem]:
    """Returns the problems with ``value``, including parts that the parser reads differently than expected."""
    outcome = parse(f"{key.name}:{value}", backend, version)
    if outcome.refused:
        return [_refused(key, value, outcome.refused.reason)]
    entries = outcome.values[key.name]
    if not isinstance(entries, tuple):
        return []
    if not value.startswith("["):
        plain = str(entries[0])
        is_odd = not re.fullmatch("[0-9]+", value)
        title = phrase("conf_values.read", key=key.name, value=value, read=plain)
        return [Problem("MD653", title, "warning", phrase("conf_values.read.begin"), plain)] if is_odd else []
    problem = _order(key, value, backend, version) or _gaps(key, value, entries, backend, version)
    return [problem] if problem else []


def _refused(key: Key, value: str, reason: str) -> Problem:
    number = to_size(value)
    right = str(1 << (number.bit_length() - 1)) if number and number < 1 << 32 else None
    title = phrase("conf_values.refused", key=key.name, value=value, reason=reason)
    return Problem("MD652", title, "critical", phrase("conf_values.refused.why", kind=type_words("divisions")), right)


def _pairs(value: str) -> list[tuple[int | None, int]]:
    """Returns sizes in MiB (None: ``>``) and divisions, in order."""
    found = []
    tokens = [token for token in tokenize(value) if token not in {"[", "]", ",", ":"}]
    for size, number in zip(tokens[::2], tokens[1::2], strict=False):
        division = to_size(number)
        if division is not None:
            found.append((None if size == ">" else to_size(size), division))
    return found


def as_recorded(value: str) -> tuple[int, ...]:
    """Returns the 16 entries of a recorded value, as the newest parser reads it; zeros if it refuses the value."""
    entries = parse_common(f"roundup_power2_divisions:{value}", NEWEST["cuda"]).values.get("roundup_power2_divisions")
    return entries if isinstance(entries, tuple) else (0,) * MAX_DIVISIONS


def as_meant(value: str) -> tuple[int, ...]:
    """Returns the 16 entries that a reader of the list expects.

    Each size covers the range from the previous size up to its own, ``>`` everything above.
    """
    pairs = sorted((size, number) for size, number in _pairs(value) if size is not None and is_power_of_two(size))
    above = [number for size, number in _pairs(value) if size is None]
    if not pairs:
        return (above[-1] if above else 0,) * MAX_DIVISIONS
    entries = []
    for k in range(MAX_DIVISIONS):
        number = next((number for size, number in pairs if (1 << k) <= size), above[-1] if above else 0)
        entries.append(number)
    return tuple(entries)


def as_list(entries: tuple[int, ...], *, shared: bool) -> str:
    """Returns the shortest list without gaps that every version reads as ``entries``."""
    if len(set(entries)) == 1 and entries[0]:
        return str(entries[0])
    first = next((k for k in range(MAX_DIVISIONS) if entries[k] != entries[0]), MAX_DIVISIONS) - 1
    tail = MAX_DIVISIONS - 1
    while tail > first + 1 and entries[tail - 1] == entries[-1]:
        tail -= 1
    items = [f"{1 << k}:{entries[k]}" for k in range(first, tail)]
    if shared:
        items += [f">:{entries[-1]}"] if entries[-1] else []
    else:  # in that version, `>` would overwrite the last size
        items += [f"{1 << k}:{entries[k]}" for k in range(tail, MAX_DIVISIONS) if entries[k]]
    return f"[{','.join(items)}]"


def _order(key: Key, value: str, backend: str, version: Version) -> Problem | None:
    sizes = [size for size, _ in _pairs(value)]
    numbers = [size for size in sizes if size is not None]
    if numbers == sorted(numbers) and None not in sizes[:-1]:
        return None
    return Problem(
        "MD653",
        phrase("conf_values.order", key=key.name, value=value),
        "warning",
        phrase("conf_values.order.why"),
        as_list(as_meant(value), shared=is_shared(backend, version)),
    )


def _gaps(key: Key, value: str, entries: tuple[int, ...], backend: str, version: Version) -> Problem | None:
    meant = as_meant(value)
    differing = [k for k in range(MAX_DIVISIONS) if entries[k] != meant[k]]
    if not differing:
        return None
    ranges: str = joined([_interval(k) for k in differing[:3]], ", ")
    if len(differing) > 3:
        ranges = phrase("conf_values.interval.more", ranges=ranges)
    if all(entries[k] == 0 for k in differing):
        why = phrase("conf_values.gap.why", ranges=ranges)
        title = phrase("conf_values.gap", key=key.name, value=value)
    else:
        why = phrase("conf_values.otherwise.why", ranges=ranges)
        title = phrase("conf_values.otherwise", key=key.name, value=value)
    return Problem("MD653", title, "warning", why, as_list(meant, shared=is_shared(backend, version)))


def _interval(k: int) -> str:
    if k == 0:
        return phrase("conf_values.interval.first")
    if k < MAX_DIVISIONS - 1:
        return phrase("conf_values.interval", low=str(1 << k), high=str(1 << (k + 1)))
    return phrase("conf_values.interval.last", gib=_LAST // 1024)
