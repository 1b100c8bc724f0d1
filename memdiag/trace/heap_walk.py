"""Prepares the walk over the heap, repeats it if a guess was wrong, and stores its results in tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from memdiag.trace import heap_state, schema
from memdiag.trace.bits import new_set
from memdiag.trace.heap import walk
from memdiag.trace.layout import Layout
from memdiag.trace.lifecycles import Lifecycles
from memdiag.trace.raw import RawDevice
from memdiag.trace.references import ReferenceRequests, reference_sizes
from memdiag.trace.regions import Groups, RegionPlan
from memdiag.trace.table import Array, Table
from memdiag.trace.uncut import uncut_groups

_UNLIMITED = 1 << 62
# Most nodes of the trees that find the largest free ranges (128 MB). With more, these ranges are not measured.
_MOST_TREE_NODES = 1 << 24
_MOST_WALKS = 3
_SUMS = {
    "reserved": heap_state.RESERVED,
    "allocated": heap_state.ALLOCATED,
    "active": heap_state.ACTIVE,
    "requested": heap_state.REQUESTED,
}
_ANOMALIES = {
    "overlap": heap_state.OVERLAP,
    "outside_segments": heap_state.OUTSIDE,
    "segment_gone_under_block": heap_state.SEGMENT_GONE_UNDER_BLOCK,
    "block_too_large": heap_state.TOO_LARGE,
    "gap": heap_state.GAP,
    "segment_reopened": heap_state.REOPENED,
}


@dataclass(frozen=True)
class Walked:
    """The results of a walk over the heap.

    Attributes:
        curves: (7, events): reserved, allocated, active, requested, cache, stranded, foreign.
        start: Sums before the first event.
        block, group, state: For each tensor, bytes and group of its block, and its state after the last event
            (``heap_state``).
        ends: Columns free_requested_at and free_completed_at, corrected for tensors that must have been freed earlier.
        references: The reference requests, with the largest free range before each.
        regions: Columns of ``schema.REGIONS``.
        anomalies: Number of each kind.
    """

    curves: Array
    start: dict[str, int]
    block: Array
    group: Array
    state: Array
    ends: dict[str, Array]
    references: Table
    regions: Table
    anomalies: dict[str, int]


def walk_heap(
    raw: RawDevice,
    layout: Layout,
    plan: RegionPlan,
    groups: Groups,
    requests: ReferenceRequests,
    lifecycles: Lifecycles,
    columns: Mapping[str, Array],
    known: Array,
) -> Walked:
    """Walks the heap; repeats the walk with corrected sizes if a guess about the initial state was wrong.

    Args:
        raw, layout: The device, and the sizes of its allocator.
        plan, groups: Its segment events, and its pools and streams.
        requests: Reference requests.
        lifecycles: Times and places of the tensors.
        columns: Columns of ``schema.TENSORS``.
        known: Bytes of each tensor's block if the file records them, else -1.
    """
    pools = {name: np.array(column) for name, column in groups.columns().items()}
    uncut = np.zeros(len(pools["small"]), bool)
    references = requests.table
    rows = heap_state.ReferenceRows(
        requests.of_event,
        references.opened_at,
        references.group.astype(np.int64),
        reference_sizes(references, len(uncut))[2],
        np.full(len(references), -1, np.int64),
    )
    guessed = known
    for _ in range(_MOST_WALKS):
        heap = _new_heap(layout, plan, pools["small"].astype(bool), uncut, references, lifecycles, columns, guessed)
        record = _new_record(plan, len(raw.action))
        num_pieces = walk(_events(raw, plan, lifecycles.tensor_of), rows, heap, record)
        pieces = record.pieces[:, :num_pieces].copy()
        tensors = heap.tensors
        ends = {"free_requested_at": tensors.requested_at, "free_completed_at": tensors.completed_at}
        whole = uncut_groups(pools, layout, {**columns, **ends}, known, tensors.group, _whole_regions(plan, pieces))
        is_mended = bool(heap.totals.anomalies[heap_state.RESIZED])
        if not is_mended and np.array_equal(whole, uncut):
            break
        if is_mended:
            guessed = np.where(columns["alloc_at"] < 0, tensors.block, guessed)
        uncut = whole
    return Walked(
        record.curves,
        {name: int(record.start[at]) for name, at in _SUMS.items()},
        tensors.block,
        tensors.group,
        tensors.state,
        ends,
        references.replace(largest_free=rows.largest),
        _regions(plan, pieces),
        {name: int(heap.totals.anomalies[at]) for name, at in _ANOMALIES.items()},
    )


def _events(raw: RawDevice, plan: RegionPlan, tensor_of: Array) -> heap_state.WalkedEvents:
    row = np.full(len(raw.action), -1, np.int64)
    row[plan.event] = np.arange(len(plan.event))
    return heap_state.WalkedEvents(
        raw.action, tensor_of, row, plan.opens, plan.expandable, plan.lo, plan.hi, plan.group, plan.segment
    )


def _new_record(plan: RegionPlan, num_events: int) -> heap_state.Record:
    """Returns empty columns for the results of a walk; unused pages of ``pieces`` take no memory."""
    num_pieces = len(plan.bounds) + int((plan.hi - plan.lo)[plan.opens].sum())
    return heap_state.Record(
        np.empty((7, num_events), np.int64),
        np.zeros(heap_state.NUM_SUMS, np.int64),
        np.empty((heap_state.NUM_PIECE_ROWS, num_pieces), np.int64),
        np.full(len(plan.bounds), -1, np.int64),
    )


def _new_heap(
    layout: Layout,
    plan: RegionPlan,
    small: Array,
    uncut: Array,
    references: Table,
    lifecycles: Lifecycles,
    columns: Mapping[str, Array],
    known: Array,
) -> heap_state.Heap:
    """Returns the heap before the first event, with all sums 0."""
    place, num_places, num_tensors = lifecycles.place, len(lifecycles.place), len(lifecycles.tensor_place)
    rounded = layout.round_size(columns["requested_bytes"])
    sizes, size_start, _ = reference_sizes(references, len(small))
    cell_of = np.searchsorted(plan.bounds, place, side="right").astype(np.int32) - 1
    cell_of[cell_of == len(plan.bounds) - 1] = -1
    asking = np.unique(references.group)
    leaves = num_places + len(plan.bounds) + 1
    has_trees = len(asking) * 2 * leaves <= _MOST_TREE_NODES
    tree_of = np.full(len(small), -1, np.int64)
    tree_of[asking] = np.arange(len(asking)) if has_trees else -1
    return heap_state.Heap(
        heap_state.Cells(
            plan.bounds,
            plan.start_group.copy(),
            plan.start_segment.copy(),
            plan.start_expandable.copy(),
            *new_set(len(plan.bounds)),
        ),
        heap_state.PlacedBlocks(
            place, cell_of, np.zeros(num_places, np.int64), np.full(num_places, -1, np.int32), *new_set(num_places)
        ),
        heap_state.Tensors(
            lifecycles.tensor_place,
            columns["alloc_at"],
            columns["free_requested_at"].copy(),
            columns["free_completed_at"].copy(),
            columns["requested_bytes"],
            rounded,
            known,
            np.where(known > 0, known, rounded),
            np.full(num_tensors, -1, np.int32),
            np.zeros(num_tensors, np.int8),
        ),
        heap_state.SplitRules(
            small,
            uncut,
            layout.large_segment,
            layout.expandable,
            _UNLIMITED if layout.max_split is None else layout.max_split,
        ),
        heap_state.Totals(
            np.zeros(heap_state.NUM_SUMS, np.int64),
            np.zeros(heap_state.NUM_ANOMALIES, np.int64),
            np.zeros(len(small), np.int64),
            sizes,
            size_start,
            np.zeros(len(sizes) + len(small) + 1, np.int64),
            tree_of,
            np.zeros((max(len(asking), 1) if has_trees else 1, 2 * leaves if has_trees else 2), np.int64),
        ),
    )


def _regions(plan: RegionPlan, pieces: Array) -> Table:
    cell = pieces[heap_state.CELL]
    return Table(
        schema.REGIONS,
        {
            "start": plan.bounds[cell],
            "size": plan.bounds[cell + 1] - plan.bounds[cell] if len(cell) else cell,
            "opened_at": pieces[heap_state.OPENED_AT],
            "closed_at": pieces[heap_state.CLOSED_AT],
            "group": pieces[heap_state.GROUP],
            "expandable": pieces[heap_state.EXPANDABLE].astype(bool),
            "segment": pieces[heap_state.SEGMENT],
        },
    )


def _whole_regions(plan: RegionPlan, pieces: Array) -> dict[str, Array]:
    """Returns the regions: adjacent cells that were reserved and released together.

    Other segments at these addresses may have had other bounds, which divide a region into several cells.
    """
    rows = pieces[:, np.lexsort((pieces[heap_state.CELL], pieces[heap_state.OPENED_AT]))]
    other = (rows[1:, 1:] != rows[1:, :-1]).any(axis=0) | (rows[0, 1:] != rows[0, :-1] + 1)
    first = np.flatnonzero(np.append(True, other)[: rows.shape[1]])
    last = np.append(first[1:], rows.shape[1])[: len(first)] - 1
    start, end = plan.bounds[rows[0, first]], plan.bounds[rows[0, last] + 1]
    names = {
        "opened_at": heap_state.OPENED_AT,
        "closed_at": heap_state.CLOSED_AT,
        "group": heap_state.GROUP,
        "expandable": heap_state.EXPANDABLE,
    }
    return {"start": start, "size": end - start, **{name: rows[k, first] for name, k in names.items()}}
