"""The keys of PYTORCH_CUDA_ALLOC_CONF, for CUDA and ROCm. First versions: the release whose library first holds the name."""

from __future__ import annotations

from dataclasses import replace

from memdiag.settings.model import Key
from memdiag.settings.shared_keys import shared_keys

KEYS: tuple[Key, ...] = (
    *shared_keys({}),
    Key(
        "backend",
        "word",
        "Chooses the allocator: PyTorch's own, or CUDA's stream-ordered pool, which ignores the other keys.",
        "native",
        "native or cudaMallocAsync",
        (2, 0),
        words=("native", "cudaMallocAsync"),
    ),
    Key(
        "throw_on_cudamalloc_oom",
        "bool",
        "Refuses a request that would pass per_process_memory_fraction at once, without giving back cached memory and trying again.",
        "False",
        "True or False",
        (2, 12),
    ),
    Key(
        "graph_capture_record_stream_reuse",
        "bool",
        "During CUDA graph capture, blocks used on several streams may be reused as soon as the graph shows that it is safe.",
        "False",
        "True or False",
        (2, 9),
    ),
    Key(
        "release_lock_on_cudamalloc",
        "bool",
        "Lets other threads allocate while one waits for the driver.",
        "False",
        "True or False",
        (2, 2),
    ),
    Key(
        "release_lock_on_hipmalloc",
        "bool",
        "The same as release_lock_on_cudamalloc, under its ROCm name.",
        "False",
        "True or False",
        (2, 2),
    ),
    Key(
        "pinned_use_cuda_host_register",
        "bool",
        "Pinned host memory is taken with malloc and then registered, which is faster for large pieces.",
        "False",
        "True or False",
        (2, 2),
        host_only=True,
    ),
    Key(
        "pinned_use_hip_host_register",
        "bool",
        "The same as pinned_use_cuda_host_register, under its ROCm name.",
        "False",
        "True or False",
        (2, 2),
        host_only=True,
    ),
    Key(
        "pinned_num_register_threads",
        "count",
        "How many threads touch the pages of pinned host memory while it is registered.",
        "1",
        "a power of two up to 128",
        (2, 2),
        lowest=1,
        highest=128,
        is_power_of_two=True,
        host_only=True,
    ),
    Key(
        "pinned_free_catch_all",
        "bool",
        "Pinned host blocks that the allocator does not know are freed all the same.",
        "False",
        "True or False",
        (2, 12),
        host_only=True,
    ),
    Key(
        "expandable_segments_reserve",
        "word",
        "How much address space an expandable segment reserves: a share of the device's memory, or a size in GiB (8G).",
        "9/8 of the device's memory",
        "a fraction, or a number followed by G",
        (2, 15),
    ),
    Key(
        "expandable_segments_reserve_by_class",
        "word",
        "The same as expandable_segments_reserve, for each class of sizes.",
        "as expandable_segments_reserve",
        "as expandable_segments_reserve",
        (2, 15),
    ),
    Key(
        "roundup_bypass_threshold_mb",
        "mib",
        "Requests above this size were not rounded up to divisions of a power of two.",
        "no limit",
        "0 or more",
        (1, 13),
        until=(2, 0),
        replaced_by="roundup_power2_divisions",
    ),
)
_HIP_BACKEND = ("native", "cudaMallocAsync", "hipMallocAsync")
# ROCm takes the names of both.
HIP_KEYS: tuple[Key, ...] = tuple(
    replace(key, words=_HIP_BACKEND, range=", ".join(_HIP_BACKEND)) if key.name == "backend" else key for key in KEYS
)
