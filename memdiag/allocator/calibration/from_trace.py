"""Converts a trace to a workload: the calls of the program, and the allocator state at the start of the trace.

There are three kinds of traces. Recordings with addresses have entries of the allocator, from which the calls are
inferred (``entries.py``), a state before the first event (``before.py``) and failures that prove limits
(``limits.py``). Plain events already have one call per row. The rest (profiler files, lists of lifetimes) only have
tensors with an allocation and a free; tensors from before the trace are allocated first.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.calibration.before import start_at
from memdiag.allocator.calibration.calls import RecordedCalls
from memdiag.allocator.calibration.entries import calls_of_entries
from memdiag.allocator.calibration.limits import Limits, limits_of
from memdiag.allocator.workload import Start, Workload
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array

PLAIN_EVENTS = "event-npz"
_NO_CALL = -1

# The operation of each plain event. A free of a known tensor is complete at once, as its caller sees it.
_OP_OF_ACTION = {
    schema.ACTION_CODES[name]: w.OP_CODES[name]
    for name in (
        "empty_cache",
        "record_stream",
        "complete",
        "sync",
        "set_fraction",
        "pool_begin",
        "pool_end",
        "pool_release",
        "external",
        "set_total",
    )
} | {schema.FREE_COMPLETED: w.FREE}
_OF_POOLS = (w.POOL_BEGIN, w.POOL_END, w.POOL_RELEASE)
_POOL_FAMILY = 1  # pools of plain events have one number; (0, 0) is taken


def workload_of(trace: Trace, device: DeviceTrace) -> Workload:
    """Returns the requests of ``device``'s program to the allocator.

    Tensors are numbered as in ``device.tensors``, then failed requests.
    """
    return described(trace, device)[0]


def described(
    trace: Trace,
    device: DeviceTrace,
    *,
    collects: bool | None = None,
    asked_for: Collection[int] = (),
    refused: Collection[int] = (),
) -> tuple[Workload, Limits]:
    """Returns the workload, and the known limits of the allocator's memory.

    ``collects``, ``asked_for`` and ``refused`` resolve ambiguities of the entries (see ``calls_of_entries``).
    """
    handles = _streams(device)
    if trace.format == PLAIN_EVENTS:
        return _plain(trace, device, handles), Limits(device.capacity_bytes, device.capacity_bytes is not None)
    if not device.has_addresses:
        return _lifetimes(device, handles), Limits(device.capacity_bytes, device.capacity_bytes is not None)
    pools = _pools(device)
    calls, failures = calls_of_entries(
        trace, device, handles, pools, collects=collects, asked_for=asked_for, refused=refused
    )
    limits = limits_of(device, failures)
    calls = calls.with_external(limits.steps)
    workload = calls.workload(
        num_rows=device.num_events,
        streams=handles,
        pools=pools,
        num_tensors=len(device.tensors) + len(failures.oom_at),
        start=start_at(device, -1, handles, pools),
        done="recorded",
        capacity_bytes=device.capacity_bytes,
    )
    return workload, limits


def resumed(workload: Workload, device: DeviceTrace, at: int) -> Workload:
    """Returns the rest of a recording with addresses after event ``at``, starting from the state recorded there."""
    rest = np.flatnonzero(workload.row > at)
    columns = {name: getattr(workload, name)[rest] for name in ("op", "tensor", "size", "stream", "pool", "row")}
    captured = set(workload.captured)
    for call in np.flatnonzero((workload.op == w.CAPTURE) & (workload.row <= at)).tolist():
        (captured.add if workload.size[call] else captured.discard)(int(workload.pool[call]))
    start = start_at(device, at, workload.streams, workload.pools)
    return replace(workload, **columns, captured=frozenset(captured), start=start)


def _streams(device: DeviceTrace) -> Array:
    """Returns the handles of all streams in the allocator's order, as unsigned numbers."""
    events = device.events
    named = events.stream[~np.isin(events.action, (schema.SNAPSHOT, schema.UNKNOWN))]
    is_all = np.isin(events.action, (schema.ACTION_CODES["complete"], schema.ACTION_CODES["pool_begin"])) & (
        events.stream < 0
    )
    if is_all.any():
        named = events.stream[~is_all]
    handles = np.concatenate(
        (np.zeros(1, np.int64) if not len(named) else named, device.groups.stream, device.tensors.stream)
    )
    return np.unique(handles.astype(np.int64).view(np.uint64))


def stream_index(handles: Array, streams: Array) -> Array:
    """Returns the indices of ``streams`` (int64 handles of a trace) in ``handles``."""
    found: Array = np.searchsorted(handles, np.asarray(streams, np.int64).view(np.uint64)).astype(np.int32)
    return found


def _pools(device: DeviceTrace) -> tuple[tuple[int, int], ...]:
    groups = device.groups
    seen = sorted({(int(a), int(b)) for a, b in zip(groups.pool_major, groups.pool_minor, strict=True)} - {(0, 0)})
    return ((0, 0), *seen)


def _plain(trace: Trace, device: DeviceTrace, handles: Array) -> Workload:
    """Returns a workload with one call per row.

    Rows that cannot be calls (a free of a tensor that was never allocated) become calls too. The replay skips them, as
    the program's allocator did.
    """
    events, n = device.events, device.num_events
    op = np.full(n, w.NOTHING, np.int8)
    for action, code in _OP_OF_ACTION.items():
        op[events.action == action] = code
    tensor = events.tensor.astype(np.int32)
    op[(events.action == schema.ALLOC) & (tensor >= 0)] = w.ALLOC
    recorded = np.flatnonzero(op == w.RECORD_STREAM)
    tensor[recorded] = _tensor_alive(device, events.addr[recorded], recorded)
    stream = np.where(
        (events.stream < 0) & np.isin(op, (w.COMPLETE, w.POOL_BEGIN)), -1, stream_index(handles, events.stream)
    )
    of_pool = np.isin(op, _OF_POOLS)
    ids = np.unique(events.addr[of_pool])
    pool = np.full(n, -1, np.int32)
    pool[of_pool] = 1 + np.searchsorted(ids, events.addr[of_pool])
    size = np.where(np.isin(op, (w.ALLOC, w.SET_FRACTION, w.EXTERNAL, w.SET_TOTAL)), events.size, 0)
    return Workload(
        op=op,
        tensor=tensor,
        size=size,
        stream=stream.astype(np.int32),
        pool=pool,
        row=np.arange(n),
        num_rows=n,
        num_tensors=len(device.tensors),
        streams=handles,
        pools=((0, 0), *((_POOL_FAMILY, int(i)) for i in ids)),
        done="manual" if trace.settings.get("done") == "manual" else "now",
        capacity_bytes=device.capacity_bytes,
    )


def _tensor_alive(device: DeviceTrace, identity: Array, at: Array) -> Array:
    """Returns the tensor with a given identity at each event; -1: none."""
    tensors = device.tensors
    order = np.lexsort((tensors.alloc_at, tensors.addr))
    if not len(order):
        return np.full(len(at), _NO_CALL, np.int32)
    ids, births = tensors.addr[order], tensors.alloc_at[order]
    # finds the last tensor of that identity allocated before the event, by a search in (identity, allocation)
    span = device.num_events + 1
    names, first = np.unique(ids, return_inverse=True)
    key = first * span + births
    wanted = np.searchsorted(names, identity)
    known = (wanted < len(names)) & (names[np.minimum(wanted, len(names) - 1)] == identity)
    found = np.searchsorted(key, wanted * span + at, side="right") - 1
    row = order[np.maximum(found, 0)]
    alive = known & (found >= 0) & (tensors.addr[row] == identity) & (tensors.free_requested_at[row] > at)
    return np.where(alive, row, _NO_CALL).astype(np.int32)


def _lifetimes(device: DeviceTrace, handles: Array) -> Workload:
    """Returns calls that allocate and free tensors; tensors from before the trace are allocated first."""
    tensors, n = device.tensors, device.num_events
    calls = RecordedCalls(handles)
    there = np.flatnonzero((tensors.alloc_at < 0) & (tensors.free_completed_at >= 0))
    calls.add(
        w.ALLOC,
        row=np.full(len(there), -1),
        tensor=there,
        size=tensors.requested_bytes[there],
        stream=tensors.stream[there],
    )
    made = np.flatnonzero(tensors.alloc_at >= 0)
    calls.add(
        w.ALLOC,
        row=tensors.alloc_at[made],
        tensor=made,
        size=tensors.requested_bytes[made],
        stream=tensors.stream[made],
    )
    calls.add_frees(device, np.arange(len(tensors)))
    return calls.workload(
        num_rows=n,
        streams=handles,
        pools=((0, 0),),
        num_tensors=len(tensors),
        start=Start(),
        done="recorded",
        capacity_bytes=device.capacity_bytes,
    )
