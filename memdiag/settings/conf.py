"""Reads the text of PYTORCH_CUDA_ALLOC_CONF (and PYTORCH_NPU_ALLOC_CONF, PYTORCH_ALLOC_CONF) leniently.

This explains recorded settings, which the allocator accepted, so unknown parts are kept as text and are never errors.
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)")
MAX_DIVISIONS = 16
_MOST = 1e15  # larger values have the same effect


def parse_conf(text: str) -> dict[str, str]:
    """Returns the keys and values of ``text`` ("max_split_size_mb:128,expandable_segments:True"), without spaces."""
    compact = re.sub(r"\s+", "", text)
    pairs = re.findall(r"([A-Za-z_0-9]+):(\[[^\]]*\]|[^,]*)", compact)
    return dict(pairs)


def leading_number(text: str) -> float | None:
    """Returns the number at the start of ``text`` ("64MB": 64.0), as the allocator's parser does, or None."""
    match = _NUMBER.match(text)
    return min(float(match.group(1)), _MOST) if match else None


def power2_divisions(text: str, *, last_open: bool = True) -> tuple[int, ...]:
    """Returns the 16 entries of roundup_power2_divisions for ``text`` ("4" or "[256:1,512:2,>:8]").

    Entry k covers requests in [2^k, 2^(k+1)) MiB. The first boundary sets all entries up to its own, later ones only
    their own, and ``>`` sets all entries after the last one. ``last_open=False`` selects the older parser, in which
    ``>`` also overwrites the last listed entry.
    """
    if not text.startswith("["):
        number = leading_number(text)
        return (int(number) if number else 0,) * MAX_DIVISIONS
    entries = [0] * MAX_DIVISIONS
    last = -1
    for position, part in enumerate(text.strip("[]").split(",")):
        boundary, _, value = part.partition(":")
        division = int(leading_number(value) or 0)
        if boundary == ">":
            start = last + 1 if last_open else max(last, 0)
            entries[start:] = [division] * (MAX_DIVISIONS - start)
            continue
        mib = int(leading_number(boundary) or 0)
        last = min(max(mib.bit_length() - 1, 0), MAX_DIVISIONS - 1)
        first = 0 if position == 0 else last
        entries[first : last + 1] = [division] * (last + 1 - first)
    return tuple(entries)
