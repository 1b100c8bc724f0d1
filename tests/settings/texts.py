"""Texts of allocator settings: typical ones written by hand, and generated ones for unexpected input."""

from __future__ import annotations

import random
from collections.abc import Iterator

from memdiag.settings.model import Key, Version
from memdiag.settings.tables import known

BY_HAND = (
    "",
    " ",
    ",",
    ":",
    "expandable_segments:True",
    "expandable_segments:False",
    "expandable_segments:true",
    "expandable_segments:1",
    "expandable_segments: True",
    "expandable_segments:\tTrue\n",
    "expandable_segments=True",
    "expandable_segments",
    "expandable_segments:",
    "expandable_segments:True,",
    "expandable_segments:True,,",
    ",expandable_segments:True",
    "expandable_segments:True;max_split_size_mb:64",
    "expandable_segments:True max_split_size_mb:64",
    "expandable_segments:True:max_split_size_mb:64",
    "expandable_segments:True,expandable_segments:False",
    "expandable_segment:True",
    "Expandable_Segments:True",
    "max_split_size_mb:128",
    "max_split_size_mb:20",
    "max_split_size_mb:19",
    "max_split_size_mb:0",
    "max_split_size_mb:-1",
    "max_split_size_mb:+64",
    "max_split_size_mb:64MB",
    "max_split_size_mb:64.9",
    "max_split_size_mb:0x80",
    "max_split_size_mb:1e3",
    "max_split_size_mb:1GB",
    "max_split_size_mb:inf",
    "max_split_size_mb:18446744073709551615",
    "max_split_size_mb:18446744073709551616",
    "max_split_size_mb:99999999999999999999999",
    "max_split_size_mb:[128]",
    "max_split_size_mb:128,max_split_size_mb:256",
    "max_split_size_mb:30,large_segment_size_mb:40",
    "large_segment_size_mb:40,max_split_size_mb:30",
    "large_segment_size_mb:12,max_split_size_mb:15",
    "large_segment_size_mb:10",
    "large_segment_size_mb:11",
    "large_segment_size_mb:21,expandable_segments:True",
    "large_segment_size_mb:-1",
    "large_segment_size_mb:40,large_segment_size_mb:12,max_split_size_mb:30",
    "max_non_split_rounding_mb:19",
    "max_non_split_rounding_mb:20",
    "max_non_split_rounding_mb:-5",
    "max_non_split_rounding_mb:30,large_segment_size_mb:40",
    "garbage_collection_threshold:0.8",
    "garbage_collection_threshold:80",
    "garbage_collection_threshold:0",
    "garbage_collection_threshold:1",
    "garbage_collection_threshold:1.0",
    "garbage_collection_threshold:0.999999999999999999",
    "garbage_collection_threshold:0.8GB",
    "garbage_collection_threshold:.5",
    "garbage_collection_threshold:5e-1",
    "garbage_collection_threshold:1e-320",
    "garbage_collection_threshold:1e999",
    "garbage_collection_threshold:nan",
    "garbage_collection_threshold:inf",
    "garbage_collection_threshold:0x1p-1",
    "garbage_collection_threshold:0x.8",
    "garbage_collection_threshold:80%",
    "garbage_collection_threshold:0,8",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:0",
    "roundup_power2_divisions:1",
    "roundup_power2_divisions:3",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "roundup_power2_divisions:[64:8,256:4,1024:4,>:1]",
    "roundup_power2_divisions:[>:8]",
    "roundup_power2_divisions:[512:2,64:8,>:16]",
    "roundup_power2_divisions:[65536:2,>:8]",
    "roundup_power2_divisions:[131072:2]",
    "roundup_power2_divisions:[256:0]",
    "roundup_power2_divisions:[100:2]",
    "roundup_power2_divisions:[0:2]",
    "roundup_power2_divisions:[256:3]",
    "roundup_power2_divisions:[256:1",
    "roundup_power2_divisions:256:1]",
    "roundup_power2_divisions:[]",
    "roundup_power2_divisions:[256:1,]",
    "roundup_power2_divisions:[256:1;512:2]",
    "roundup_power2_divisions:[256:1 512:2]",
    "roundup_power2_divisions:[256]",
    "roundup_power2_divisions:[256MB:4]",
    "roundup_power2_divisions:[-1:4]",
    "roundup_power2_divisions:[>:2,64:4]",
    "roundup_power2_divisions:[64:4],roundup_power2_divisions:[256:8]",
    "roundup_power2_divisions:4,roundup_power2_divisions:[256:8]",
    "roundup_power2_divisions:[64:4,>=:8]",
    "pinned_use_background_threads:True",
    "pinned_max_round_threshold_mb:0",
    "pinned_max_round_threshold_mb:-1",
    "pinned_max_cached_size_mb:64",
    "pinned_max_cached_size_mb:17592186044416",
    "pinned_reserve_segment_size_mb:0",
    "pinned_reserve_segment_size_mb:16",
    "pinned_reserve_segment_size_mb:-1",
    "pinned_num_register_threads:8",
    "pinned_num_register_threads:3",
    "pinned_num_register_threads:256",
    "pinned_num_register_threads:0",
    "pinned_use_cuda_host_register:True,pinned_num_register_threads:4",
    "pinned_use_hip_host_register:True",
    "pinned_free_catch_all:True",
    "release_lock_on_cudamalloc:True",
    "release_lock_on_hipmalloc:True,release_lock_on_cudamalloc:False",
    "graph_capture_record_stream_reuse:True",
    "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5",
    "per_process_memory_fraction:0",
    "per_process_memory_fraction:1",
    "per_process_memory_fraction:1.1",
    "per_process_memory_fraction:-0.0",
    "backend:native",
    "backend:Native",
    "backend:native,backend:native",
    "expandable_segments:True,max_split_size_mb:64",
    "max_split_size_mb:64,expandable_segments:True",
    "expandable_segments:True,garbage_collection_threshold:0.8",
    "expandable_segments:False,garbage_collection_threshold:0.8,max_split_size_mb:64",
    "expandable_segments:True,max_split_size_mb:-1",
    "base_addr_aligned_kb:16",
    "base_addr_aligned_kb:17",
    "base_addr_aligned_kb:0",
    "base_addr_aligned_kb:08",
    "base_addr_aligned_kb:-1",
    "base_addr_aligned_kb:8.0",
    "page_size:1g",
    "page_size:1G",
    "page_size:2m",
    "page_size",
    "segment_size_mb:20",
    "segment_size_mb:19",
    "segment_size_mb:513",
    "segment_size_mb:064",
    "segment_size_mb:64MB",
    "segment_size_mb:99999999999",
    "segment_size_mb:64,expandable_segments:True",
    "multi_stream_lazy_reclaim:True",
    "multi_stream_lazy_reclaim:yes",
    "throw_on_npumalloc_oom:True",
    "release_lock_on_npumalloc:True",
    "pin_memory_expandable_segments:True",
    "pinned_mem_register:True",
    "foo:1",
    "foo",
    "max_split_size_mb:64,foo:1",
    "foo:[1,2],max_split_size_mb:64",
    "'expandable_segments:True'",
    "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
)
_VALUES = {
    "bool": ("True", "False", "true", "1"),
    "mib": ("16", "20", "21", "32", "64", "128", "512", "513", "64MB", "-1", "+7", "1e2", "0"),
    "kib": ("0", "8", "16", "17", "08"),
    "count": ("1", "2", "4", "128", "256", "3"),
    "fraction": ("0.5", "0.8", ".25", "0", "1.0", "1", "2", "0.8x", "nan", "x"),
    "word": ("native", "1g", "2m"),
    "divisions": (
        "1",
        "4",
        "8",
        "3",
        "[64:4]",
        "[64:4,>:2]",
        "[>:8,16:2]",
        "[3:1]",
        "[64:0,128:4]",
        "[64:8,1024:2,>:4]",
    ),
}
_ALL = (*(value for values in _VALUES.values() for value in values), "[", "]", "")
_PIECES = ("", ",", ":", "[", "]", ">", "=", ";", " ", "\t", "64", "True", "0.5", ":64", ",64:2")


def generated(backend: str, seed: int, count: int, version: Version = (2, 13)) -> Iterator[str]:
    """Yields random texts, most of them well-formed, some with characters replaced or inserted."""
    rng = random.Random(f"{backend} {seed}")  # noqa: S311 - no secrets
    keys = list(known(backend, version).values())
    for _ in range(count):
        yield mixed(rng, keys)


def mixed(rng: random.Random, keys: list[Key]) -> str:
    """Returns a random text with settings of ``keys``."""
    chosen = [rng.choice(keys) for _ in range(rng.choice((1, 1, 2, 2, 3, 4)))]
    pairs = [f"{key.name}:{_value(rng, key)}" for key in chosen]
    text = rng.choice((",", ",", ",", ",", ",", ", ", ";", ":")).join(pairs)
    for _ in range(rng.choice((0, 0, 0, 0, 1, 2))):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(_PIECES) + text[at + rng.choice((0, 0, 1, 3)) :]
    return text


def _value(rng: random.Random, key: Key) -> str:
    if key.kind == "divisions" and rng.random() < 0.6:
        sizes = (">", "64", "100", *(str(2**n) for n in range(19)))
        items = [f"{rng.choice(sizes)}:{rng.choice((0, 1, 2, 4, 8, 16, 3))}" for _ in range(rng.randrange(5))]
        return f"[{','.join(items)}]"
    if rng.random() < 0.9:
        return rng.choice(_VALUES[key.kind][: rng.choice((2, 99))])
    return rng.choice(_ALL) if rng.random() < 0.5 else str(rng.randrange(-3, 600))
