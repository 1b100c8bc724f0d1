"""The keys that the allocators of all accelerators read, from torch 2.10 on with one parser.

The backends received them in different versions, so ``cuda_keys.py`` and ``npu_keys.py`` supply first versions.
"""

from __future__ import annotations

from dataclasses import replace

from memdiag.settings.model import Key, Version

LARGEST = float(2**64 - 1)

_KEYS = (
    Key("max_split_size_mb", "mib", (1, 10), lowest=20, at_least_segment=True),
    Key("max_non_split_rounding_mb", "mib", (2, 6), lowest=20, at_least_segment=True),
    Key("large_segment_size_mb", "mib", (2, 11), lowest=11),
    Key("roundup_power2_divisions", "divisions", (1, 12), is_power_of_two=True),
    Key("garbage_collection_threshold", "fraction", (1, 12), lowest=0, highest=1, is_open=True),
    Key("expandable_segments", "bool", (2, 1)),
    Key("per_process_memory_fraction", "fraction", (2, 10), lowest=0, highest=1),
    Key("pinned_use_background_threads", "bool", (2, 6), host_only=True),
    Key("pinned_reserve_segment_size_mb", "mib", (2, 10), lowest=1, host_only=True),
    Key("pinned_max_round_threshold_mb", "mib", (2, 13), host_only=True),
    Key("pinned_max_cached_size_mb", "mib", (2, 13), host_only=True),
)


def shared_keys(since: dict[str, Version]) -> tuple[Key, ...]:
    """Returns the common keys with one backend's first versions in ``since``; the others are as on CUDA."""
    return tuple(replace(key, since=since.get(key.name, key.since)) for key in _KEYS)
