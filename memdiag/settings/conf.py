"""Reads recorded settings (PYTORCH_CUDA_ALLOC_CONF, PYTORCH_NPU_ALLOC_CONF, PYTORCH_ALLOC_CONF) leniently.

This explains settings that an allocator accepted, so unknown parts are kept as text and are never errors. ``written``
splits the text; ``parsers`` reads it as the allocators do.
"""

from __future__ import annotations

import re

from memdiag.settings.written import entries

_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)")
_KEY = re.compile(r"[A-Za-z_0-9]+$")
_MOST = 1e15  # larger values have the same effect


def parse_conf(text: str) -> dict[str, str]:
    """Returns the keys and values of ``text`` ("max_split_size_mb:128,expandable_segments:True"), without spaces."""
    found = {}
    for entry in entries(re.sub(r"\s+", "", text)):
        key = _KEY.search(entry.key)
        if key and entry.value is not None and entry.oddity != "equals":
            found[key.group()] = entry.value
    return found


def leading_number(text: str) -> float | None:
    """Returns the number at the start of ``text`` ("64MB": 64.0), as the allocator's parser does, or None."""
    match = _NUMBER.match(text)
    return min(float(match.group(1)), _MOST) if match else None
