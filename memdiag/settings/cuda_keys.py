"""The keys of PYTORCH_CUDA_ALLOC_CONF, for CUDA and ROCm.

First versions: the first release whose library contains the name.
"""

from __future__ import annotations

from dataclasses import replace

from memdiag.settings.model import Key
from memdiag.settings.shared_keys import shared_keys

KEYS: tuple[Key, ...] = (
    *shared_keys({}),
    Key("backend", "word", (2, 0), words=("native", "cudaMallocAsync")),
    Key("throw_on_cudamalloc_oom", "bool", (2, 12)),
    Key("graph_capture_record_stream_reuse", "bool", (2, 9)),
    Key("release_lock_on_cudamalloc", "bool", (2, 2)),
    Key("release_lock_on_hipmalloc", "bool", (2, 2)),
    Key("pinned_use_cuda_host_register", "bool", (2, 2), host_only=True),
    Key("pinned_use_hip_host_register", "bool", (2, 2), host_only=True),
    Key("pinned_num_register_threads", "count", (2, 2), lowest=1, highest=128, is_power_of_two=True, host_only=True),
    Key("pinned_free_catch_all", "bool", (2, 12), host_only=True),
    Key("expandable_segments_reserve", "word", (2, 15)),
    Key("expandable_segments_reserve_by_class", "word", (2, 15)),
    Key("roundup_bypass_threshold_mb", "mib", (1, 13), until=(2, 0), replaced_by="roundup_power2_divisions"),
)
_HIP_BACKEND = ("native", "cudaMallocAsync", "hipMallocAsync")
# ROCm accepts the variable names of both.
HIP_KEYS: tuple[Key, ...] = tuple(
    replace(key, words=_HIP_BACKEND, of="hip") if key.name == "backend" else key for key in KEYS
)
