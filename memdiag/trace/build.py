"""Builds a Trace from a file's columns: lifecycles, the initial state, block sizes, and the bytes after every event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from memdiag.results.finding import Note
from memdiag.trace import lifecycles, schema
from memdiag.trace.distinct import distinct
from memdiag.trace.free_split import num_before_a_gap
from memdiag.trace.heap_walk import walk_heap
from memdiag.trace.layout import Layout
from memdiag.trace.lifecycles import Lifecycles
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.notes import notes_on
from memdiag.trace.process_memory import return_free_memory
from memdiag.trace.raw import RawDevice
from memdiag.trace.recording import ProcessMarks
from memdiag.trace.references import find_references, no_references
from memdiag.trace.regions import Groups, plan_regions
from memdiag.trace.snapshot_fields import MORE_COLUMNS
from memdiag.trace.stacks import Stacks
from memdiag.trace.table import Array, Table

_CURVES = ("reserved", "allocated", "active", "requested", "cache", "stranded", "foreign")


@dataclass(frozen=True)
class RawTrace:
    """The content of a file, as columns.

    Attributes:
        path, format, backend, torch_version, phantom, settings, strings, annotations, notes: As in ``Trace``.
        raws: One entry per device.
        host: Pinned host memory in the form of a device, or None if the file has none.
        host_samples: As in ``Trace``.
        layout: Sizes that the allocator used; PyTorch's defaults if None.
        stacks: The table that the ``stack`` columns refer to.
        recorded: Marks of a recorder.
        bases: As in ``Trace``, if the caller will fill in known phases, steps and categories; they are then not
            inferred.
    """

    path: str
    format: str
    backend: str | None
    raws: Sequence[RawDevice]
    layout: Layout | None = None
    stacks: Stacks | None = None
    torch_version: str | None = None
    phantom: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)
    strings: Sequence[str] = ()
    annotations: Table | None = None
    notes: Sequence[Note] = ()
    recorded: ProcessMarks | None = None
    bases: Mapping[str, str] = field(default_factory=dict)
    host: RawDevice | None = None
    host_samples: Table = field(default_factory=lambda: Table.empty(schema.HOST_SAMPLES))


def build_trace(raw: RawTrace) -> Trace:
    """Builds the trace of a file from the columns of its devices."""
    from memdiag.trace.annotate import annotate

    layout = raw.layout or Layout()
    devices = tuple(_build_device(each, layout) for each in raw.raws)
    return_free_memory()
    trace = Trace(
        path=raw.path,
        format=raw.format,
        backend=raw.backend,
        devices=devices,
        stacks=raw.stacks or Stacks.empty(),
        torch_version=raw.torch_version,
        phantom=raw.phantom,
        settings=dict(raw.settings),
        strings=tuple(raw.strings),
        annotations=raw.annotations if raw.annotations is not None else Table.empty(schema.ANNOTATIONS),
        notes=(*raw.notes, *notes_on(devices, raw.raws)),
        complete_from_start=_complete(devices),
        layout=layout,
        bases=dict(raw.bases),
        host=None if raw.host is None else _build_device(raw.host, layout),
        host_samples=raw.host_samples,
    )
    found = annotate(trace, raw.recorded)
    return_free_memory()
    return found


def _complete(devices: Sequence[DeviceTrace]) -> bool | None:
    """Returns whether no tensor was live before the first event; None without events, or if there are only curves."""
    with_events = [d for d in devices if d.num_events and (len(d.tensors) or _has_segment_events(d))]
    if not with_events:
        return None
    return all(d.start["active"] == 0 and d.start["reserved"] in (0, -1) for d in with_events)


def _has_segment_events(device: DeviceTrace) -> bool:
    return bool(np.isin(device.events.action, schema.SEGMENT_ACTIONS).any())


def _build_device(raw: RawDevice, layout: Layout) -> DeviceTrace:
    if raw.expandable is not None:
        layout = replace(layout, expandable=raw.expandable)
    n = len(raw.action)
    final = raw.blocks if raw.blocks is not None else Table.empty(schema.BLOCKS)
    held = np.flatnonzero(final.state != schema.INACTIVE)
    is_block_event = (raw.action <= schema.FREE_COMPLETED) & (raw.addr >= 0)
    place, number = distinct(np.concatenate((raw.addr[is_block_event], final.address[held])))
    key = np.full(n, -1, np.int32)
    key[is_block_event] = number[: len(number) - len(held)]
    final_key = number[len(number) - len(held) :]
    final_state = np.zeros(len(place), np.int8)
    final_state[final_key] = final.state[held]
    lives = Lifecycles(place, *lifecycles.pair(raw.action, key, len(place), final_state))
    oddities, tensor_of = lives.anomalies, lives.tensor_of

    guessed = np.empty(0, np.int64)
    columns, known, still = _describe(raw, final, held, final_key, lives)
    groups = Groups()
    anomalies = {
        "double_free": int(oddities[lifecycles.DOUBLE_FREE]),
        "unmatched_free": int(oddities[lifecycles.UNMATCHED_FREE]),
        "alloc_on_live": int(oddities[lifecycles.ALLOC_ON_LIVE]),
        "final_block_already_freed": int((~still).sum()),
    }
    has_segments = raw.has_addresses and (
        raw.segments is not None or bool(np.isin(raw.action, schema.SEGMENT_ACTIONS).any())
    )
    if has_segments:
        plan = plan_regions(raw, layout, groups)
        requests = find_references(raw, layout, plan, groups)
        walked = walk_heap(raw, layout, plan, groups, requests, lives, columns, known)
        curves, start, block, group_of = walked.curves, walked.start, walked.block, walked.group
        references, regions = walked.references, walked.regions
        columns |= walked.ends
        anomalies |= walked.anomalies
        small = np.array([*groups.columns()["small"], True], bool)  # the last entry is for "no group"
        if not layout.expandable:
            whole = block == layout.round_size(columns["requested_bytes"])
            guessed = np.flatnonzero((lives.alloc_at < 0) & (known <= 0) & ~small[group_of] & whole)
        if raw.blocks is not None and raw.segments is not None:
            anomalies["final_state_differs"] = _differences(walked.state, columns["addr"], block, final, held)
        anomalies["segment_contradictions"] = plan.contradictions
    else:
        requests = no_references(n)
        references = requests.table
        regions = Table.empty(schema.REGIONS)
        block = np.where(known > 0, known, columns["requested_bytes"])
        group_of = np.full(len(block), -1, np.int32)
        curves, start = _plain_curves(raw, columns, block)
    usage = Table(schema.USAGE, {**{name: curves[i] for i, name in enumerate(_CURVES)}, "reference": requests.of_event})
    tensors = Table(schema.TENSORS, {**columns, "block_bytes": block, "group": group_of})
    device = DeviceTrace(
        device=raw.device,
        events=_events(raw, tensor_of, group_of),
        usage=usage,
        references=references,
        tensors=tensors,
        regions=regions,
        groups=Table(schema.GROUPS, {k: np.array(v) for k, v in groups.columns().items()}),
        segments=raw.segments if raw.segments is not None else Table.empty(schema.SEGMENTS),
        blocks=final,
        has_addresses=has_segments,
        start=start,
        anomalies={k: v for k, v in anomalies.items() if v},
        capacity_bytes=raw.capacity_bytes,
        card=raw.card,
        samples=raw.samples,
        has_final_state=raw.segments is not None,
    )
    return replace(device, num_uncertain_blocks=num_before_a_gap(device, guessed)) if len(guessed) else device


def _describe(
    raw: RawDevice, final: Table, held: Array, final_place: Array, lives: Lifecycles
) -> tuple[dict[str, Array], Array, Array]:
    """Collects the known values of each tensor: from its alloc, else from its free, else from the final state.

    Returns:
        Columns of ``schema.TENSORS`` except block size and group; bytes of the block if the file records them, else -1;
        and for each block that is held at the end (``held``), whether it is still live after the last event.
    """
    n, rows = len(raw.action), len(lives.tensor_place)
    last = np.full(len(lives.place), -1, np.int64)
    last[lives.tensor_place] = np.arange(rows)  # the newest tensor at each place
    final_tensor = last[final_place]
    still = lives.completed_at[final_tensor] == n if len(final_tensor) else np.zeros(0, bool)
    known = np.full(rows, -1, np.int64)
    known[final_tensor[still]] = final.size[held][still]
    requested = np.full(rows, -1, np.int64)
    asked = np.where(final.requested_size[held] >= 0, final.requested_size[held], final.size[held])
    requested[final_tensor[still]] = asked[still]
    tensor_of = lives.tensor_of
    touched = np.flatnonzero(tensor_of >= 0)[::-1]
    requested[tensor_of[touched]] = raw.size[touched]  # written last, so the earliest event of a tensor wins
    requested = np.maximum(requested, 0)

    stream = np.zeros(rows, np.int64)
    stack = np.full(rows, -1, np.int32)
    free_stack = np.full(rows, -1, np.int32)
    category = np.zeros(rows, np.int8)
    stack[final_tensor[still]] = final.stack[held][still]
    if raw.segments is not None and len(held):
        stream[final_tensor[still]] = raw.segments.stream[final.segment[held][still]]
    if raw.stream is not None:
        stream[tensor_of[touched]] = raw.stream[touched]
    born = np.flatnonzero((tensor_of >= 0) & (raw.action == schema.ALLOC))
    dies = np.flatnonzero((tensor_of >= 0) & (raw.action != schema.ALLOC))[::-1]
    if raw.stack is not None:
        stack[tensor_of[born]] = raw.stack[born]
        free_stack[tensor_of[dies]] = raw.stack[dies]
    if raw.category is not None:
        category[tensor_of[born]] = raw.category[born]
    columns = {
        "addr": lives.place[lives.tensor_place] if rows else np.empty(0, np.int64),
        "requested_bytes": requested,
        "alloc_at": lives.alloc_at,
        "free_requested_at": lives.requested_at,
        "free_completed_at": lives.completed_at,
        "stream": stream,
        "stack": stack,
        "free_stack": free_stack,
        "category": category,
        "lifetime": np.zeros(rows, np.int8),
        "lifetime_inferred": np.zeros(rows, np.bool_),
        "phase_alloc": np.zeros(rows, np.int8),
        "phase_free": np.zeros(rows, np.int8),
        "step_alloc": np.full(rows, -1, np.int32),
        "step_free": np.full(rows, -1, np.int32),
        "name": np.full(rows, -1, np.int32),
        "label": np.broadcast_to(np.int32(-1), rows),
    }
    return columns, known, still


def _events(raw: RawDevice, tensor_of: Array, group_of: Array) -> Table:
    n = len(raw.action)
    return Table(
        schema.EVENTS,
        {
            "action": raw.action,
            "addr": raw.addr,
            "size": raw.size,
            "tensor": tensor_of,
            "stream": raw.stream if raw.stream is not None else np.zeros(n, np.int64),
            "time_us": raw.time_us if raw.time_us is not None else np.full(n, -1, np.int64),
            "stack": raw.stack if raw.stack is not None else np.full(n, -1, np.int32),
            "group": np.where(tensor_of >= 0, group_of[tensor_of], -1) if len(group_of) else np.full(n, -1, np.int32),
            "phase": np.zeros(n, np.int8),
            "step": np.full(n, -1, np.int32),
            **{name: raw.more.get(name, np.full(n, -1, schema.EVENTS[name].dtype)) for name in MORE_COLUMNS},
        },
    )


def _differences(state: Array, addr: Array, block: Array, final: Table, held: Array) -> int:
    """Returns how many blocks differ between the trace and the file's final state (address, size or state)."""
    mine = np.flatnonzero(state > 0)
    ours = {(int(a), int(b), int(s)) for a, b, s in zip(addr[mine], block[mine], state[mine], strict=True)}
    theirs = {
        (int(a), int(b), int(s))
        for a, b, s in zip(final.address[held], final.size[held], final.state[held], strict=True)
    }
    return len(ours ^ theirs)


def _plain_curves(raw: RawDevice, columns: Mapping[str, Array], block: Array) -> tuple[Array, dict[str, int]]:
    """Returns the curves of a source without segments: as recorded in the file, else the sum of the lifecycles."""
    n = len(raw.action)
    curves = np.full((len(_CURVES), n), -1, np.int64)
    start = {"reserved": -1, "allocated": -1, "active": -1, "requested": -1}
    if len(block):
        for name, weights, ends in (
            ("allocated", block, columns["free_requested_at"]),
            ("active", block, columns["free_completed_at"]),
            ("requested", columns["requested_bytes"], columns["free_requested_at"]),
        ):
            change = np.zeros(n + 1, np.int64)
            born, dies = columns["alloc_at"] >= 0, (ends < n) & (ends >= 0)
            np.add.at(change, columns["alloc_at"][born], weights[born])
            np.subtract.at(change, ends[dies], weights[dies])
            start[name] = int(weights[~born & (ends >= 0)].sum())
            curves[_CURVES.index(name)] = start[name] + np.cumsum(change[:n])
    for name, values in raw.curves.items():
        curves[_CURVES.index(name)] = values
        known = np.flatnonzero(values >= 0)
        if len(known):
            # Without a size recorded with the first event, the value before it is unknown.
            start[name] = -1 if known[0] > 0 or name == "reserved" else start[name]
    return curves, start
