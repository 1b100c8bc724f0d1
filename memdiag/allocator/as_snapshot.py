"""Writes a recorded or simulated trace as a PyTorch snapshot, for PyTorch's own viewer and ``memdiag analyze``.

The file holds builtin containers only, in pickle protocol 4. The extra key ``memdiag`` records that the trace is
simulated, its source and its settings, and carries marks for phases, steps and tensor names.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memdiag.allocator.as_trace import Simulated
from memdiag.allocator.result import Replay
from memdiag.output_file import whole_file
from memdiag.recorder.columns import pack_bytes
from memdiag.trace import schema
from memdiag.trace.layout import Layout
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.recorded import LOOK, PHASE, STEP
from memdiag.trace.schema import BLOCK, ENTRY, SEGMENT
from memdiag.trace.snapshot_fields import MORE_COLUMNS
from memdiag.trace.snapshot_rows import final_tables, rows_of
from memdiag.trace.stacks import Frame, Stacks
from memdiag.trace.table import Array, Table
from memdiag.version import __version__

_FORMAT = 1
_MOST_NAMED = 400_000  # named tensors, as many as a recording stores
_UNLIMITED = -1


def write_snapshot(path: Path, simulated: Simulated, replay: Replay) -> None:
    """Writes a simulated trace to ``path``."""
    content = snapshot(simulated, replay)
    with whole_file(path) as file:
        pickle.dump(content, file, protocol=4)


def snapshot(simulated: Simulated, replay: Replay) -> dict[str, Any]:
    """Returns a simulated trace in the form of ``torch.cuda.memory._snapshot()``."""
    trace, device = simulated.trace, simulated.device
    own_facts = {
        "simulated": {
            "of": trace.path,
            "policy": replay.policy,
            "conf": replay.conf,
            "torch_version": replay.torch_version,
            "capacity_bytes": replay.capacity_bytes,
        },
    }
    return as_pytorch_has_it(trace, (device,), torch_version=replay.torch_version, own_facts=own_facts)


def as_pytorch_has_it(
    trace: Trace, devices: Sequence[DeviceTrace], *, torch_version: str | None, own_facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns a trace with addresses in the form of ``torch.cuda.memory._snapshot()``.

    Args:
        trace: The trace.
        devices: The devices of the trace to include.
        torch_version: The version whose form is used; None: unknown.
        own_facts: Additional facts under the key ``memdiag``.
    """
    frames = _FrameTable(trace.stacks)
    entries = {device.device: _entries(device, frames, trace.strings) for device in devices}
    capacities = {device.device: device.capacity_bytes for device in devices if device.capacity_bytes is not None}
    content: dict[str, Any] = {
        "segments": [segment for device in devices for segment in _segments(device, frames, trace.strings)],
        "device_traces": [entries.get(number, []) for number in range(max(entries, default=-1) + 1)],
        "allocator_settings": _settings(trace, trace.layout),
        "external_annotations": _annotations(trace),
    }
    if trace.host is not None:
        content["host_segments"] = _rows_of_segments(
            trace.host, trace.host.segments, trace.host.blocks, frames, trace.strings
        )
        content["host_traces"] = _entries(trace.host, frames, trace.strings)
    # readers infer phases again; the marks of several devices would count each other's blocks
    active = [device for device in devices if device.num_events]
    marks = _marks(trace, active[0]) if trace.bases.get("phase") == "marks" and len(active) == 1 else {}
    content["memdiag"] = {
        "format": _FORMAT,
        "memdiag_version": __version__,
        "backend": trace.backend,
        "torch_version": torch_version,
        "phantom": trace.phantom,
        "capacity_bytes": capacities or None,
        **own_facts,
        **marks,
    }
    return content


class _FrameTable:
    """Stacks as lists of frames; equal stacks are one list, which pickle writes once."""

    def __init__(self, stacks: Stacks) -> None:
        self._frames = [_as_dict(frame) for frame in stacks.frames]
        self._lists = [
            [self._frames[frame] for frame in stacks.frame_ids[begin:end].tolist()]
            for begin, end in zip(stacks.offsets[:-1].tolist(), stacks.offsets[1:].tolist(), strict=True)
        ]

    def of(self, stack: int) -> list[dict[str, Any]]:
        return self._lists[stack] if stack >= 0 else []


def _as_dict(frame: Frame) -> dict[str, Any]:
    """Returns a frame as PyTorch writes it."""
    found: dict[str, Any] = {"name": frame.name, "filename": frame.filename, "line": frame.line}
    if frame.fx is not None:
        found |= {"fx_node_op": frame.fx.op, "fx_node_name": frame.fx.name, "fx_node_target": frame.fx.target}
        found |= {"fx_original_trace": frame.fx.trace} if frame.fx.trace else {}
    return found


def _entries(device: DeviceTrace, frames: _FrameTable, strings: Sequence[str]) -> list[dict[str, Any]]:
    events, groups = device.events, device.groups
    pool_of = list(zip(groups.pool_major.tolist(), groups.pool_minor.tolist(), strict=True))
    opened: dict[int, int] = dict(zip(device.regions.opened_at.tolist(), device.regions.group.tolist(), strict=True))
    closed: dict[int, int] = dict(zip(device.regions.closed_at.tolist(), device.regions.group.tolist(), strict=True))
    columns = {name: events[name] for name in ("action", "addr", "size", "stream", "stack", *MORE_COLUMNS)}
    columns["addr"] = np.maximum(columns["addr"], 0)
    if (events.time_us >= 0).any():
        columns["time_us"] = np.maximum(events.time_us, 0)
    # workspace snapshots and calls of the program are not entries of this allocator
    kept = np.flatnonzero((events.action < schema.WORKSPACE_SNAPSHOT) | (events.action == schema.ANNOTATE))
    entries = rows_of(ENTRY, {name: column[kept] for name, column in columns.items()}, strings, frames.of)
    own, action = events.group[kept].tolist(), events.action[kept].tolist()
    for at, entry, group, code in zip(kept.tolist(), entries, own, action, strict=True):
        free = entry.pop("device_free")  # stored in the column of "addr", because a failed request has no address
        if code == schema.OOM:
            del entry["addr"]
            entry["device_free"] = free
        group = group if group >= 0 else opened.get(at, closed.get(at, -1))
        if group >= 0:
            entry["pool_id"] = pool_of[group]
    return entries


def _segments(device: DeviceTrace, frames: _FrameTable, strings: Sequence[str]) -> list[dict[str, Any]]:
    return _rows_of_segments(device, *final_tables(device), frames, strings)


def _rows_of_segments(
    device: DeviceTrace, segments: Table, blocks: Table, frames: _FrameTable, strings: Sequence[str]
) -> list[dict[str, Any]]:
    rows = rows_of(SEGMENT, {name: segments[name] for name in segments}, strings, frames.of)
    found: list[dict[str, Any]] = [{"device": device.device, **row, "blocks": []} for row in rows]
    own = rows_of(BLOCK, {name: blocks[name] for name in blocks if name != "segment"}, strings, frames.of)
    for home, block in zip(blocks.segment.tolist(), own, strict=True):
        found[home]["blocks"].append(block)
    return found


def _settings(trace: Trace, layout: Layout) -> dict[str, Any]:
    return {
        **trace.settings,
        "max_split_size": _UNLIMITED if layout.max_split is None else layout.max_split,
        "expandable_segments": layout.expandable,
        "roundup_power2_divisions": {str(1 << k): entry for k, entry in enumerate(layout.divisions)},
    }


def _annotations(trace: Trace) -> list[dict[str, Any]]:
    spans = trace.annotations
    columns = (spans[name].tolist() for name in ("name", "start", "device", "time_us"))
    return [
        {"name": trace.strings[name], "stage": "START" if start else "END", "device": device, "time_us": time}
        for name, start, device, time in zip(*columns, strict=True)
    ]


def _marks(trace: Trace, device: DeviceTrace) -> dict[str, Any]:
    """Returns phases, steps and names as a recorder marks them: by the numbers of blocks allocated and freed so far."""
    events, tensors = device.events, device.tensors
    allocs = np.concatenate(([0], np.cumsum(events.action == schema.ALLOC)))
    frees = np.concatenate(([0], np.cumsum(events.action == schema.FREE_REQUESTED)))
    phase, step = events.phase.astype(np.int64), events.step.astype(np.int64)
    turns = np.flatnonzero(np.append(True, phase[1:] != phase[:-1])) if len(phase) else np.empty(0, np.int64)
    steps = np.flatnonzero((step[1:] > step[:-1]) & (step[:-1] >= 0)) + 1 if len(step) else np.empty(0, np.int64)
    named = np.flatnonzero((tensors.name >= 0) & (tensors.free_requested_at > tensors.alloc_at + 1))[-_MOST_NAMED:]
    at = np.concatenate((turns, steps, tensors.alloc_at[named] + 1))
    kind = np.repeat((PHASE, STEP, LOOK), (len(turns), len(steps), len(named)))
    value = np.concatenate((phase[turns], step[steps], np.arange(len(named))))
    order = np.lexsort((kind, at))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    moment = at[order]
    none = np.zeros(len(order), np.int64)
    here = np.full(len(order), device.device)
    looks = place[len(turns) + len(steps) :]
    return {
        "names": list(trace.strings),
        "marks": _packed(
            time_ns=none, kind=kind[order], value=value[order], device=here, allocs=allocs[moment], frees=frees[moment]
        ),
        "modules": _packed(time_ns=none[:0], name=none[:0], device=none[:0], allocs=none[:0], frees=none[:0]),
        "tensors": _packed(
            device=np.full(len(named), device.device),
            addr=tensors.addr[named],
            category=tensors.category[named],
            name=tensors.name[named],
            first=looks,
            last=looks,
        ),
        "counts": {device.device: {"allocs": int(allocs[-1]), "frees": int(frees[-1])}},
    }


def _packed(**columns: Array) -> dict[str, str]:
    return {name: pack_bytes(column.astype("<i8").tobytes()) for name, column in columns.items()}
