"""The keys that MindSpeed's memory fragmentation feature reads from PYTORCH_NPU_ALLOC_CONF with its own parser.

The feature (MEMORY_FRAGMENTATION=1, later --memory-fragmentation) was removed from MindSpeed in 2025; older branches
contain it.
"""

from __future__ import annotations

from memdiag.settings.model import Key

KEYS: tuple[Key, ...] = (
    Key("max_split_size_mb", "mib", (1, 11), lowest=21, of="mindspeed"),
    Key("garbage_collection_threshold", "fraction", (1, 11), lowest=0, highest=1, is_open=True, of="mindspeed"),
    Key("expandable_segments", "bool", (1, 11), of="mindspeed"),
    Key("default_lc_threshold", "fraction", (1, 11), lowest=0),
    Key("open_memory_optimize", "bool", (1, 11), words=("true", "1", "false", "0")),
)
