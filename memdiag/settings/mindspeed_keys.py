"""The keys that MindSpeed's memory fragmentation feature reads from PYTORCH_NPU_ALLOC_CONF with a parser of its own.

The feature (MEMORY_FRAGMENTATION=1, later --memory-fragmentation) was taken out of MindSpeed in 2025; older branches carry it.
"""

from __future__ import annotations

from memdiag.settings.model import Key

KEYS: tuple[Key, ...] = (
    Key(
        "max_split_size_mb",
        "mib",
        "Blocks of this size or more are never cut.",
        "no limit",
        "more than 20",
        (1, 11),
        lowest=21,
    ),
    Key(
        "garbage_collection_threshold",
        "fraction",
        "Read, but without any effect in this allocator.",
        "off",
        "more than 0 and less than 1",
        (1, 11),
        lowest=0,
        highest=1,
        is_open=True,
    ),
    Key(
        "expandable_segments",
        "bool",
        "Must be False: the feature has segments of its own.",
        "False",
        "False",
        (1, 11),
    ),
    Key(
        "default_lc_threshold",
        "fraction",
        "Tensors of at most this many bytes are not sorted by lifetime.",
        "0",
        "bytes, 0 or more",
        (1, 11),
        lowest=0,
    ),
    Key(
        "open_memory_optimize",
        "bool",
        "Looks for a place for large tensors with a search of its own.",
        "off",
        "true, 1, false or 0",
        (1, 11),
        words=("true", "1", "false", "0"),
    ),
)
