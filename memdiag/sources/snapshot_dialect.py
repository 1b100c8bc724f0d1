"""Infers which allocator wrote a snapshot, and with which rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from memdiag.settings.conf import leading_number, parse_conf
from memdiag.settings.divisions import as_recorded
from memdiag.sizes import npu
from memdiag.sizes.cuda import LARGE_SEGMENT, MIN_BLOCK
from memdiag.trace import schema
from memdiag.trace.layout import Layout
from memdiag.trace.raw import RawDevice
from memdiag.trace.stacks import Stacks
from memdiag.units import MIB

# Keys of allocator_settings in PyTorch 2.1 to 2.15. Settings of XPU and torch_npu have the same names.
_SETTINGS = frozenset(
    {
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_HIP_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_NPU_ALLOC_CONF",
        "max_split_size",
        "garbage_collection_threshold",
        "expandable_segments",
        "pinned_num_register_threads",
        "release_lock_on_cudamalloc",
        "pinned_use_cuda_host_register",
        "graph_capture_record_stream_reuse",
        "roundup_power2_divisions",
        "max_round_threshold",
        "max_cached_size",
    }
)
_MOST_MIB = 1 << 24  # 16 TiB: no size setting is larger


# Parts of file and function names that only one backend has. ROCm's C++ functions keep names of CUDA, its library not.
_FRAMES = {
    "xpu": ("torch/xpu/", "libtorch_xpu", "c10::xpu::"),
    "hip": ("libtorch_hip", "libc10_hip", "c10::hip::", "at::hip::"),
    "mtia": ("torch/mtia/", "libtorch_mtia", "c10::mtia::"),
}


def _small_blocks(raws: Sequence[RawDevice]) -> tuple[np.ndarray, np.ndarray]:
    """Returns requested and block bytes of active small blocks, whose size is always exactly the rounded request."""
    requested, size = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for raw in raws:
        if raw.segments is not None and raw.blocks is not None and len(raw.blocks):
            blocks = raw.blocks
            rows = (
                (blocks.state == schema.ACTIVE_ALLOCATED)
                & raw.segments.small[blocks.segment]
                & (blocks.requested_size > 0)
            )
            requested.append(blocks.requested_size[rows])
            size.append(blocks.size[rows])
    return np.concatenate(requested), np.concatenate(size)


def _pad(raws: Sequence[RawDevice]) -> int | None:
    """Returns the bytes added to every request according to the file's own blocks, or None if they do not show it."""
    requested, size = _small_blocks(raws)
    telling = -requested % MIN_BLOCK < npu.PAD  # with a pad of 32, these are rounded up to the next 512
    if not telling.any():
        return None
    padded = size[telling] > requested[telling] + npu.PAD
    return npu.PAD if padded.mean() > 0.5 else 0


def backend_of(
    stacks: Stacks,
    raws: Sequence[RawDevice],
    settings: Mapping[str, object],
    *,
    has_time: bool,
    has_expandable: bool,
) -> str:
    """Returns "npu", "xpu", "hip", "mtia" or "cuda".

    torch_npu is recognised by its frames, by its padding of requests, or by its default stream, which is not 0. XPU's
    snapshots have the settings of no other allocator: the variable that all backends share, and no limit of splits.
    ROCm and MTIA are recognised by frames of their libraries.
    """
    if any("torch_npu" in frame.filename for frame in stacks.frames):
        return "npu"
    if "PYTORCH_ALLOC_CONF" in settings and "max_split_size" not in settings:
        return "xpu"
    for backend, marks in _FRAMES.items():
        if any(any(mark in f"{frame.filename} {frame.name}" for mark in marks) for frame in stacks.frames):
            return backend
    if settings or has_time:
        return "cuda"
    pad = _pad(raws)
    if pad is not None:
        return "npu" if pad == npu.PAD else "cuda"
    streams = [raw.segments.stream for raw in raws if raw.segments is not None and len(raw.segments)]
    return "npu" if has_expandable and streams and all((stream != 0).all() for stream in streams) else "cuda"


def unknown_settings(settings: Mapping[str, object]) -> set[str]:
    """Returns the keys of ``allocator_settings`` that no known version of PyTorch writes."""
    return {str(key) for key in settings if key not in _SETTINGS}


def version_of(keys: set[str], settings: Mapping[str, object], has_time: bool, backend: str) -> str | None:
    """Returns a guess at the torch version from the keys of the file ("2.10 or later?"), or None."""
    if backend != "cuda" or not keys:
        return None
    if "host_traces" in keys:
        return "2.14 or later?"
    if "pool_id" in keys:
        return "2.13 or later?"
    if "user_metadata" in keys:
        return "2.10 or later?"
    if settings:
        return "2.5 to 2.9?"
    return "2.1 to 2.4?" if has_time else "2.0?"


def layout_of(settings: Mapping[str, object], raws: Sequence[RawDevice], backend: str) -> Layout:
    """Returns the sizes that the allocator used, from the file's settings, else inferred from its blocks."""
    raw_text = next((v for k, v in settings.items() if k.endswith("ALLOC_CONF") and isinstance(v, str)), "")
    conf = parse_conf(raw_text)
    pad = _pad(raws) if backend == "npu" else 0
    max_split = settings.get("max_split_size")
    if type(max_split) is not int or max_split <= 0 or max_split >= 1 << 50:
        split_mb = leading_number(conf.get("max_split_size_mb", ""))
        max_split = int(split_mb * MIB) if split_mb and split_mb <= _MOST_MIB else None
    large = LARGE_SEGMENT
    for key in ("segment_size_mb", "large_segment_size_mb"):
        number = leading_number(conf.get(key, ""))
        large = int(number) * MIB if number and 1 <= number <= _MOST_MIB else large
    if conf.get("page_size") == "1g":
        large = 1024 * MIB
    return Layout(
        pad=npu.PAD if pad is None else pad,
        divisions=_divisions(settings, conf),
        max_split=max_split,
        large_segment=large,
        expandable=bool(settings.get("expandable_segments"))
        or _is_expandable(raws)
        or (conf.get("expandable_segments") == "True" and not _has_segments(raws)),
    )


def _divisions(settings: Mapping[str, object], conf: Mapping[str, str]) -> tuple[int, ...]:
    listed = settings.get("roundup_power2_divisions")
    if isinstance(listed, dict):
        entries = [listed.get(str(1 << k), 0) for k in range(16)]
        return tuple(e if isinstance(e, int) and 0 <= e <= 1 << 20 else 0 for e in entries)
    return as_recorded(conf["roundup_power2_divisions"]) if "roundup_power2_divisions" in conf else (0,) * 16


def _is_expandable(raws: Sequence[RawDevice]) -> bool:
    return any(
        (raw.segments is not None and raw.segments.expandable.any())
        or np.isin(raw.action, (schema.SEGMENT_MAP, schema.SEGMENT_UNMAP)).any()
        for raw in raws
    )


def expandable_by_device(raws: list[RawDevice], layout: Layout) -> list[RawDevice]:
    """Returns devices with their own value of expandable segments, in which processes of a merged file can differ.

    If any device has an expandable segment, devices that have only others did not use the setting.
    """
    if not layout.expandable or not _is_expandable(raws):
        return raws
    return [
        replace(raw, expandable=False) if _has_segments([raw]) and not _is_expandable([raw]) else raw for raw in raws
    ]


def _has_segments(raws: Sequence[RawDevice]) -> bool:
    """Returns whether any segment is known: segments show whether expandable segments were in effect."""
    return any(
        (raw.segments is not None and len(raw.segments) > 0) or (raw.action == schema.SEGMENT_ALLOC).any()
        for raw in raws
    )


def without_workspace(raw: RawDevice) -> tuple[RawDevice, int]:
    """Removes torch_npu's workspace memory from a device's columns; returns the rest and the removed bytes.

    With TASK_QUEUE_ENABLE=2, the scratch memory of operators has a separate allocator. A snapshot has a triple
    workspace_snapshot, segment_alloc, alloc per stream at the start of the trace, and segments at the end. The caching
    allocator has reserved and allocated none of it (NPUWorkspaceAllocator.cpp).
    """
    marks = np.flatnonzero(raw.action == schema.WORKSPACE_SNAPSHOT)
    marks = marks[marks + 2 < len(raw.action)] if len(marks) else marks
    marks = (
        marks[(raw.action[marks + 1] == schema.SEGMENT_ALLOC) & (raw.action[marks + 2] == schema.ALLOC)]
        if len(marks)
        else marks
    )
    if not len(marks):
        return raw, 0
    action = raw.action.copy()
    action[marks + 1] = action[marks + 2] = schema.WORKSPACE_SNAPSHOT
    outside = np.unique(raw.addr[marks + 1])
    segments, blocks = raw.segments, raw.blocks
    taken = int(raw.size[marks + 1].sum())
    if segments is not None and blocks is not None:
        # The allocator's own segments come first: the last of equal addresses is the workspace's.
        gone = np.isin(segments.address, outside) & (np.maximum(segments.allocated_size, 0) == 0)
        number = np.cumsum(~gone) - 1
        kept = ~gone[blocks.segment]
        segments, blocks = segments.take(~gone), blocks.take(kept).replace(segment=number[blocks.segment[kept]])
    return replace(raw, action=action, segments=segments, blocks=blocks), taken


def without_cache(raw: RawDevice) -> RawDevice:
    """Returns a device whose allocator caches nothing (the CPU's): reserved bytes equal allocated bytes.

    Other viewers need every block in a segment, so the recorder writes a segment around each block. These are removed
    here.
    """
    raw = _taken(raw, ~np.isin(raw.action, (schema.SEGMENT_ALLOC, schema.SEGMENT_FREE)))
    change = np.where(raw.action == schema.ALLOC, raw.size, np.where(raw.action == schema.FREE_COMPLETED, -raw.size, 0))
    live = int(raw.blocks.size.sum()) if raw.blocks is not None else 0
    held = live - int(change.sum()) + np.cumsum(change)
    return replace(raw, segments=None, has_addresses=False, curves={**raw.curves, "reserved": held})


def _taken(raw: RawDevice, rows: np.ndarray) -> RawDevice:
    """Returns a selection of a device's events."""
    columns = {name: getattr(raw, name) for name in ("action", "addr", "size", "stream", "time_us", "stack", "pool")}
    more = {name: column[rows] for name, column in raw.more.items()}
    return replace(raw, more=more, **{name: column[rows] for name, column in columns.items() if column is not None})
