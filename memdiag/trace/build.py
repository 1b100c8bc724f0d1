"""From a file's columns to a Trace: lifecycles, the state before the trace, every block's size, and the bytes after every event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from memdiag.results.finding import Note
from memdiag.trace import heap, lifecycles, schema
from memdiag.trace.bits import new_set
from memdiag.trace.cells import set_breaks
from memdiag.trace.free_split import num_before_a_gap
from memdiag.trace.layout import Layout
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.notes import notes_on
from memdiag.trace.raw import RawDevice
from memdiag.trace.recording import Recorded
from memdiag.trace.references import find_references, reference_sizes
from memdiag.trace.regions import Groups, RegionPlan, plan_regions
from memdiag.trace.snapshot_fields import TEXT_COLUMNS
from memdiag.trace.stacks import Stacks
from memdiag.trace.table import Array, Table
from memdiag.trace.uncut import uncut_groups

_UNLIMITED = 1 << 62
_MOST_TREE_NODES = (
    1 << 24
)  # of the search for largest free ranges: 128 MB; with more pools and addresses they are not measured
_CURVES = ("reserved", "allocated", "active", "requested", "cache", "stranded", "foreign")


def build_trace(
    *,
    path: str,
    format: str,
    backend: str | None,
    raws: Sequence[RawDevice],
    layout: Layout | None = None,
    stacks: Stacks | None = None,
    torch_version: str | None = None,
    phantom: bool = False,
    settings: Mapping[str, object] | None = None,
    strings: Sequence[str] = (),
    annotations: Table | None = None,
    notes: Sequence[Note] = (),
    recorded: Recorded | None = None,
    bases: Mapping[str, str] | None = None,
) -> Trace:
    """Builds the trace of a file from the columns of its devices.

    Args:
        path, format, backend, torch_version, phantom, settings, strings, annotations, notes: As in ``Trace``.
        raws: One entry a device.
        layout: Sizes the allocator used; PyTorch's defaults if None.
        stacks: What the ``stack`` columns refer to.
        recorded: What a recorder marked.
        bases: As in ``Trace``, where phases, steps and categories are known and will be filled in: nothing is inferred
            then.
    """
    from memdiag.trace.annotate import annotate

    used = layout or Layout()
    devices = tuple(_build_device(raw, used) for raw in raws)
    trace = Trace(
        path=path,
        format=format,
        backend=backend,
        devices=devices,
        stacks=stacks or Stacks.empty(),
        torch_version=torch_version,
        phantom=phantom,
        settings=dict(settings or {}),
        strings=tuple(strings),
        annotations=annotations if annotations is not None else Table.empty(schema.ANNOTATIONS),
        notes=(*notes, *notes_on(devices, raws)),
        complete_from_start=_complete(devices),
        layout=used,
        bases=dict(bases or {}),
    )
    return annotate(trace, recorded)


def _complete(devices: Sequence[DeviceTrace]) -> bool | None:
    """Whether nothing was there before the first event; None where there are no events, or only curves."""
    with_events = [d for d in devices if d.num_events and len(d.tensors)]
    if not with_events:
        return None
    return all(d.start["active"] == 0 and d.start["reserved"] in (0, -1) for d in with_events)


def _build_device(raw: RawDevice, layout: Layout) -> DeviceTrace:
    n = len(raw.action)
    final = raw.blocks if raw.blocks is not None else Table.empty(schema.BLOCKS)
    held = np.flatnonzero(final.state != schema.INACTIVE)
    is_block_event = (raw.action <= schema.FREE_COMPLETED) & (raw.addr >= 0)
    place, number = np.unique(np.concatenate((raw.addr[is_block_event], final.address[held])), return_inverse=True)
    key = np.full(n, -1, np.int32)
    key[is_block_event] = number[: len(number) - len(held)]
    final_key = number[len(number) - len(held) :]
    final_state = np.zeros(len(place), np.int8)
    final_state[final_key] = final.state[held]
    tensor_of, tensor_key, alloc_at, requested_at, completed_at, oddities = lifecycles.pair(
        raw.action, key, len(place), final_state
    )

    guessed = np.empty(0, np.int64)
    columns, known, still = _describe(
        raw, final, held, final_key, place, tensor_of, tensor_key, alloc_at, requested_at, completed_at
    )
    groups = Groups()
    anomalies = {
        "double_free": int(oddities[lifecycles.DOUBLE_FREE]),
        "unmatched_free": int(oddities[lifecycles.UNMATCHED_FREE]),
        "alloc_on_live": int(oddities[lifecycles.ALLOC_ON_LIVE]),
        "final_block_already_freed": int((~still).sum()),
    }
    has_segments = raw.has_addresses and (
        raw.segments is not None
        or bool(
            np.isin(
                raw.action, (schema.SEGMENT_ALLOC, schema.SEGMENT_MAP, schema.SEGMENT_FREE, schema.SEGMENT_UNMAP)
            ).any()
        )
    )
    if has_segments:
        plan = plan_regions(raw, layout, groups)
        references, reference_of = find_references(raw, layout, plan, groups)
        walked = _walk(
            raw, layout, plan, groups, references, reference_of, place, tensor_of, tensor_key, columns, known
        )
        curves, start, block, group_of, references, regions, found, state, ends = walked
        columns |= ends
        anomalies |= found
        small = np.array([*groups.columns()["small"], True], bool)  # the last one stands for "no group"
        if not layout.expandable:
            whole = block == layout.round(columns["requested_bytes"])
            guessed = np.flatnonzero((alloc_at < 0) & (known <= 0) & ~small[group_of] & whole)
        if raw.blocks is not None and raw.segments is not None:
            anomalies["final_state_differs"] = _differences(state, columns["addr"], block, final, held)
        anomalies["segment_contradictions"] = plan.contradictions
    else:
        references, reference_of = Table.empty(schema.REFERENCES), np.full(n, -1, np.int32)
        regions = Table.empty(schema.REGIONS)
        block = np.where(known > 0, known, columns["requested_bytes"])
        group_of = np.full(len(block), -1, np.int32)
        curves, start = _plain_curves(raw, columns, block)
    usage = Table(schema.USAGE, {**{name: curves[i] for i, name in enumerate(_CURVES)}, "reference": reference_of})
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
        has_final_state=raw.segments is not None,
    )
    return replace(device, num_uncertain_blocks=num_before_a_gap(device, guessed)) if len(guessed) else device


def _describe(
    raw: RawDevice,
    final: Table,
    held: Array,
    final_key: Array,
    place: Array,
    tensor_of: Array,
    tensor_key: Array,
    alloc_at: Array,
    requested_at: Array,
    completed_at: Array,
) -> tuple[dict[str, Array], Array, Array]:
    """Gathers what is known of each tensor: from its alloc, else from its free, else from the final state.

    Returns:
        Columns of ``schema.TENSORS`` but for block size and group; bytes of the block where the file itself says so, else -1; and
        whether each block held at the end (``held``) is still live after the last event.
    """
    n, rows = len(raw.action), len(tensor_key)
    last = np.full(len(place), -1, np.int64)
    last[tensor_key] = np.arange(rows)  # the newest tensor at each place
    final_tensor = last[final_key]
    still = completed_at[final_tensor] == n if len(final_tensor) else np.zeros(0, bool)
    known = np.full(rows, -1, np.int64)
    known[final_tensor[still]] = final.size[held][still]
    requested = np.full(rows, -1, np.int64)
    asked = np.where(final.requested_size[held] >= 0, final.requested_size[held], final.size[held])
    requested[final_tensor[still]] = asked[still]
    touched = np.flatnonzero(tensor_of >= 0)[::-1]
    requested[tensor_of[touched]] = raw.size[touched]  # the earliest event of a tensor is written last
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
        "addr": place[tensor_key] if rows else np.empty(0, np.int64),
        "requested_bytes": requested,
        "alloc_at": alloc_at,
        "free_requested_at": requested_at,
        "free_completed_at": completed_at,
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
            **{name: raw.texts.get(name, np.broadcast_to(np.int32(-1), n)) for name in TEXT_COLUMNS},
        },
    )


def _walk(
    raw: RawDevice,
    layout: Layout,
    plan: RegionPlan,
    groups: Groups,
    references: Table,
    reference_of: Array,
    place: Array,
    tensor_of: Array,
    tensor_key: Array,
    columns: Mapping[str, Array],
    known: Array,
) -> tuple[Array, dict[str, int], Array, Array, Table, Table, dict[str, int], Array, dict[str, Array]]:
    """Walks the heap, a second time with the sizes found if a guess at the state before the trace had to be mended."""
    n = len(raw.action)
    small = np.array(groups.columns()["small"], bool)
    xs, x_start, position = reference_sizes(references, len(small))
    segment_row = np.full(n, -1, np.int64)
    segment_row[plan.event] = np.arange(len(plan.event))
    rounded = layout.round(columns["requested_bytes"])
    edges = np.unique(np.concatenate((place, plan.bounds)))
    asking = np.unique(references.group)
    leaves = 1 << max(len(edges) - 1, 1).bit_length()
    has_trees = len(asking) * 2 * leaves <= _MOST_TREE_NODES
    tree_of = np.full(len(small), -1, np.int64)
    tree_of[asking] = np.arange(len(asking)) if has_trees else -1
    uncut, said = np.zeros(len(small), bool), known
    for _ in range(3):
        cell_group, cell_segment = plan.start_group.copy(), plan.start_segment.copy()
        cell_expandable = plan.start_expandable.copy()
        breaks, break_starts = new_set(len(plan.bounds))
        set_breaks(plan.bounds, cell_group, cell_segment, cell_expandable, breaks, break_starts)
        live, live_starts = new_set(len(place))
        ends = {name: columns[name].copy() for name in ("free_requested_at", "free_completed_at")}
        curves, block, group_of, best, pieces, found, start, state, mended = heap.walk(
            raw.action,
            tensor_of,
            segment_row,
            plan.opens,
            plan.expandable,
            plan.lo,
            plan.hi,
            plan.group,
            plan.segment,
            plan.bounds,
            cell_group,
            cell_segment,
            cell_expandable,
            breaks,
            break_starts,
            small,
            uncut,
            layout.large_segment,
            layout.expandable,
            _UNLIMITED if layout.max_split is None else layout.max_split,
            place,
            live,
            live_starts,
            tensor_key,
            columns["alloc_at"],
            ends["free_requested_at"],
            ends["free_completed_at"],
            columns["requested_bytes"],
            rounded,
            known,
            reference_of,
            references.opened_at,
            references.group.astype(np.int64),
            position,
            xs,
            x_start,
            edges,
            tree_of,
            np.zeros((max(len(asking), 1) if has_trees else 1, 2 * leaves if has_trees else 2), np.int64),
        )
        whole = uncut_groups(
            {name: np.array(column) for name, column in groups.columns().items()},
            layout,
            {**columns, **ends},
            said,
            group_of,
            _whole_regions(plan, pieces),
        )
        if not mended and np.array_equal(whole, uncut):
            break
        if mended:
            known = np.where(columns["alloc_at"] < 0, block, known)
        uncut = whole
    cell, opened, closed, group, expandable, segment = pieces
    regions = Table(
        schema.REGIONS,
        {
            "start": plan.bounds[cell],
            "size": plan.bounds[cell + 1] - plan.bounds[cell] if len(cell) else cell,
            "opened_at": opened,
            "closed_at": closed,
            "group": group,
            "expandable": expandable.astype(bool),
            "segment": segment,
        },
    )
    names = ("overlap", "outside_segments", "segment_gone_under_block", "block_too_large", "gap", "segment_reopened")
    sums = {"reserved": heap.RESERVED, "allocated": heap.ALLOCATED, "active": heap.ACTIVE, "requested": heap.REQUESTED}
    return (
        curves,
        {name: int(start[at]) for name, at in sums.items()},
        block,
        group_of,
        references.replace(largest_free=best),
        regions,
        {name: int(count) for name, count in zip(names, found, strict=True)},
        state,
        ends,
    )


def _whole_regions(plan: RegionPlan, pieces: Array) -> dict[str, Array]:
    """Puts together what was obtained and given back as one, though other segments were cut elsewhere at these addresses."""
    rows = pieces[:, np.lexsort((pieces[0], pieces[1]))]
    other = (rows[1:, 1:] != rows[1:, :-1]).any(axis=0) | (rows[0, 1:] != rows[0, :-1] + 1)
    first = np.flatnonzero(np.append(True, other)[: rows.shape[1]])
    last = np.append(first[1:], rows.shape[1])[: len(first)] - 1
    start, end = plan.bounds[rows[0, first]], plan.bounds[rows[0, last] + 1]
    names = {"opened_at": 1, "closed_at": 2, "group": 3, "expandable": 4}
    return {"start": start, "size": end - start, **{name: rows[k, first] for name, k in names.items()}}


def _differences(state: Array, addr: Array, block: Array, final: Table, held: Array) -> int:
    """Returns how many blocks the trace and the file's final state disagree on (address, size or state)."""
    mine = np.flatnonzero(state > 0)
    ours = {(int(a), int(b), int(s)) for a, b, s in zip(addr[mine], block[mine], state[mine], strict=True)}
    theirs = {
        (int(a), int(b), int(s))
        for a, b, s in zip(final.address[held], final.size[held], final.state[held], strict=True)
    }
    return len(ours ^ theirs)


def _plain_curves(raw: RawDevice, columns: Mapping[str, Array], block: Array) -> tuple[Array, dict[str, int]]:
    """Curves of a source without segments: what the file recorded, else what the lifecycles add up to."""
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
            # Without the entry's own size nothing tells what stood there before it.
            start[name] = -1 if known[0] > 0 or name == "reserved" else start[name]
    return curves, start
