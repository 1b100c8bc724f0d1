"""The keys of PYTORCH_NPU_ALLOC_CONF (Ascend).

First versions: the first torch_npu release whose library contains the name.

A later post-release of an older line may already have a key although its version is lower (2.7.1.post2 is newer than
2.9.0).
"""

from __future__ import annotations

from memdiag.settings.model import Key
from memdiag.settings.shared_keys import shared_keys

# torch_npu reads these only with expandable segments.
NEEDS_EXPANDABLE = ("segment_size_mb", "base_addr_aligned_kb")

KEYS: tuple[Key, ...] = (
    *shared_keys(
        {
            "max_split_size_mb": (1, 11),
            "garbage_collection_threshold": (1, 11),
            "expandable_segments": (1, 11),
            "roundup_power2_divisions": (2, 9),
            "pinned_use_background_threads": (2, 10),
            "per_process_memory_fraction": (2, 11),
            "max_non_split_rounding_mb": (2, 13),
        }
    ),
    Key("base_addr_aligned_kb", "kib", (2, 1), lowest=0, highest=16, is_digits=True),
    Key("page_size", "word", (2, 1), words=("1g",)),
    Key("segment_size_mb", "mib", (2, 9), lowest=20, highest=512, is_digits=True, replaced_by="large_segment_size_mb"),
    Key("multi_stream_lazy_reclaim", "bool", (2, 10)),
    Key("throw_on_npumalloc_oom", "bool", (2, 13)),
    Key("release_lock_on_npumalloc", "bool", (2, 13)),
    Key("pin_memory_expandable_segments", "bool", (2, 10), host_only=True),
    Key("pinned_mem_register", "bool", (2, 10), host_only=True),
)
