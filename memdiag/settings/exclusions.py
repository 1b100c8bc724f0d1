"""Settings that conflict with each other, for recorded settings and for suggestions."""

from __future__ import annotations

import re

# torch_npu raises at the first allocation if one of these is combined with expandable_segments:True.
EXCLUDED_BY_EXPANDABLE = ("max_split_size_mb", "garbage_collection_threshold")

# Features that a line to paste can turn on. EXCLUSIVE lists the conflicting pairs with their backend ("" for all).
_FEATURES = {
    "expandable segments": r"expandable_segments:True",
    "max_split_size_mb": r"max_split_size_mb:\d",
    "garbage collection": r"garbage_collection_threshold:",
    "lifetime pools": r"MEMORY_FRAGMENTATION=1|--memory-fragmentation",
    "1 GiB pages": r"page_size:1g",
    "async allocator": r"backend:cudaMallocAsync",
}
# Variables, options and calls that a second line would overwrite.
_ASSIGNED = re.compile(r"\b[A-Z][A-Z0-9_]+(?==)|set_per_process_memory_fraction|--[a-z][a-z-]+")
EXCLUSIVE: tuple[tuple[str, frozenset[str]], ...] = (
    ("npu", frozenset({"expandable segments", "max_split_size_mb"})),
    ("npu", frozenset({"expandable segments", "garbage collection"})),
    ("", frozenset({"expandable segments", "lifetime pools"})),
    ("", frozenset({"lifetime pools", "max_split_size_mb"})),
    ("", frozenset({"async allocator", "expandable segments"})),
    ("", frozenset({"async allocator", "max_split_size_mb"})),
    ("", frozenset({"async allocator", "garbage collection"})),
)


def features(change: str) -> frozenset[str]:
    """Returns the features that a line to paste turns on, as named in ``EXCLUSIVE``."""
    return frozenset(name for name, expression in _FEATURES.items() if re.search(expression, change))


def exclude(backend: str, one: str, other: str) -> bool:
    """Returns whether two lines to paste conflict on a backend: in their features, or by overwriting each other."""
    if one != other and {*_ASSIGNED.findall(one)} & {*_ASSIGNED.findall(other)}:
        return True
    both = features(one) | features(other)
    return any(pair <= both for where, pair in EXCLUSIVE if where in {"", backend})
