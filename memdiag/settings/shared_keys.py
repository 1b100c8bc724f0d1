"""The keys that the allocators of all accelerators read, from torch 2.10 on with one parser.

Not every backend had all of them at once: ``cuda.py`` and ``npu.py`` put in their own first versions.
"""

from __future__ import annotations

from dataclasses import replace

from memdiag.settings.model import Key, Version

LARGEST = float(2**64 - 1)

_KEYS = (
    Key(
        "max_split_size_mb",
        "mib",
        "Blocks of this size or more are never cut, so that small requests cannot break large blocks into pieces.",
        "no limit",
        "20 or more, and not below large_segment_size_mb",
        (1, 10),
        lowest=20,
        at_least_segment=True,
    ),
    Key(
        "max_non_split_rounding_mb",
        "mib",
        "How much larger than the request a block above max_split_size_mb may be and still be handed out whole.",
        "20, or large_segment_size_mb",
        "20 or more, and not below large_segment_size_mb",
        (2, 6),
        lowest=20,
        at_least_segment=True,
    ),
    Key(
        "large_segment_size_mb",
        "mib",
        "Size of the segment that is taken from the driver for requests of 1 to 10 MiB, and the unit in which expandable segments grow.",
        "20",
        "more than 10; even with expandable_segments on CUDA",
        (2, 11),
        lowest=11,
    ),
    Key(
        "roundup_power2_divisions",
        "divisions",
        "Rounds requests up to one of this many steps between powers of two, so that freed blocks fit more requests.",
        "off: multiples of 512 bytes",
        "powers of two; 0 in a list turns it off for that interval",
        (1, 12),
        is_power_of_two=True,
    ),
    Key(
        "garbage_collection_threshold",
        "fraction",
        "When reserved memory passes this share of the memory limit, blocks that were unused for longest are given back to the driver.",
        "off",
        "more than 0 and less than 1",
        (1, 12),
        lowest=0,
        highest=1,
        is_open=True,
    ),
    Key(
        "expandable_segments",
        "bool",
        "Segments grow page by page in one range of addresses, so that free memory does not end up in pieces of fixed size.",
        "False",
        "True or False",
        (2, 1),
    ),
    Key(
        "per_process_memory_fraction",
        "fraction",
        "Share of the device's memory that this process may take from the driver, set before the first allocation.",
        "1.0, no limit",
        "0 to 1",
        (2, 10),
        lowest=0,
        highest=1,
    ),
    Key(
        "pinned_use_background_threads",
        "bool",
        "A thread of its own finds out which pinned host blocks are free again.",
        "False",
        "True or False",
        (2, 6),
        host_only=True,
    ),
    Key(
        "pinned_reserve_segment_size_mb",
        "mib",
        "Takes one large piece of pinned host memory at the start and serves small requests from it.",
        "0, off",
        "more than 0",
        (2, 10),
        lowest=1,
        host_only=True,
    ),
    Key(
        "pinned_max_round_threshold_mb",
        "mib",
        "Pinned host requests above this size are not rounded up to a power of two.",
        "no limit",
        "0 or more",
        (2, 13),
        host_only=True,
    ),
    Key(
        "pinned_max_cached_size_mb",
        "mib",
        "Pinned host blocks above this size are given back instead of kept for reuse.",
        "no limit",
        "0 or more",
        (2, 13),
        host_only=True,
    ),
)


def shared_keys(since: dict[str, Version]) -> tuple[Key, ...]:
    """Returns the common keys with the first versions of one backend where ``since`` has them, the others as on CUDA."""
    return tuple(replace(key, since=since.get(key.name, key.since)) for key in _KEYS)
