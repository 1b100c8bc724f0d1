"""Collects calls inferred from a trace in any order, and sorts them into the order in which they were made."""

from __future__ import annotations

from typing import Any

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.workload import Start, Workload
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array

# Order among calls that are inferred from the same event.
EARLIER, ITSELF, LATER, LAST = range(-1, 3)
_COLUMNS = ("op", "tensor", "size", "stream", "pool", "row", "place", "rank")
_FREES = (schema.FREE_REQUESTED, schema.FREE_COMPLETED)


class RecordedCalls:
    """Calls, a block of rows at a time.

    ``row`` is the event after which a call is complete. ``place`` is the event from which it is inferred (by default
    ``row``), and ``rank`` is its order among the calls of one event.
    """

    def __init__(self, handles: Array) -> None:
        self.handles = handles
        self._parts: list[dict[str, Array]] = []

    def add(
        self,
        op: int,
        *,
        row: Array,
        tensor: Array | int = -1,
        size: Array | int = 0,
        stream: Array | None = None,
        pool: Array | int = -1,
        place: Array | None = None,
        rank: Array | int = ITSELF,
    ) -> None:
        """Adds calls of one kind. ``stream`` has the recorded handles of streams; None: these calls have no stream."""
        count = len(row)
        index = (
            np.full(count, -1)
            if stream is None
            else np.searchsorted(self.handles, np.asarray(stream, np.int64).view(np.uint64))
        )
        given = {"op": op, "tensor": tensor, "size": size, "stream": index, "pool": pool, "row": row, "rank": rank}
        given["place"] = row if place is None else place
        self._parts.append({name: np.broadcast_to(np.asarray(value, np.int64), count) for name, value in given.items()})

    def add_frees(self, device: DeviceTrace, rows: Array, late: Array | None = None) -> None:
        """Adds the frees of tensors.

        A request directly followed by its completion forms one FREE, since no other stream used the tensor.

        Args:
            device: The device.
            rows: The tensors (rows of ``device.tensors``).
            late: Per event, the allocation (event) whose retry waited for streams and thereby completed the free; -1:
                none. The allocation searched for a block before these frees completed, so they come after it.
        """
        tensors, n = device.tensors, device.num_events
        asked, done = tensors.free_requested_at[rows], tensors.free_completed_at[rows]
        own = [_is_own(device, rows, at) for at in (asked, done)]
        at_once = (asked >= 0) & (asked < n) & ((done == asked) | (done == asked + 1) & own[0] & own[1])
        # A free without an entry is inferred when another block uses the memory; it comes before that event.
        for op, at, is_own, chosen in (
            (w.FREE, done, own[1], at_once),
            (w.FREE_REQUESTED, asked, own[0], ~at_once & (asked >= 0) & (asked < n)),
            (w.FREE_COMPLETED, done, own[1], ~at_once & (done >= 0) & (done < n)),
        ):
            which = np.flatnonzero(chosen)
            event, is_event = at[which], is_own[which]
            row, rank = np.where(is_event, event, event - 1), np.where(is_event, ITSELF, EARLIER)
            if late is not None and op == w.FREE_COMPLETED:
                behind = np.where(is_event, late[event], -1)
                event, row = np.where(behind >= 0, behind, event), np.where(behind >= 0, behind, row)
                rank = np.where(behind >= 0, LATER, rank)
            self.add(op, row=row, tensor=rows[which], place=event, rank=rank)

    def with_external(self, steps: Array) -> RecordedCalls:
        """Adds changes of the memory of other processes (rows: event, bytes from then on); returns itself."""
        if len(steps):
            self.add(w.EXTERNAL, row=steps[:, 0] - 1, size=steps[:, 1], place=steps[:, 0], rank=EARLIER - 2)
        return self

    def workload(
        self,
        *,
        num_rows: int,
        streams: Array,
        pools: tuple[tuple[int, int], ...],
        num_tensors: int,
        start: Start,
        done: str,
        capacity_bytes: int | None,
    ) -> Workload:
        """Returns all calls, in order."""
        joined = {name: np.concatenate([part[name] for part in self._parts]) for name in _COLUMNS}
        order = np.lexsort((joined["rank"], joined["place"]))
        dtypes = {
            "op": np.int8,
            "tensor": np.int32,
            "size": np.int64,
            "stream": np.int32,
            "pool": np.int32,
            "row": np.int64,
        }
        columns: dict[str, Any] = {
            name: np.ascontiguousarray(joined[name][order], dtype) for name, dtype in dtypes.items()
        }
        # ids that torch itself gives to the pools of graphs have a major number
        captured = frozenset(index for index, (major, _) in enumerate(pools) if major)
        return Workload(
            **columns,
            num_rows=num_rows,
            num_tensors=num_tensors,
            streams=streams,
            pools=pools,
            captured=captured,
            start=start,
            done=done,
            capacity_bytes=capacity_bytes,
        )


def _is_own(device: DeviceTrace, rows: Array, at: Array) -> Array:
    """Returns, per free, whether its event is a free entry of the same tensor."""
    n = device.num_events
    inside = (at >= 0) & (at < n)
    event = np.where(inside, at, 0)
    if not n:
        return inside
    own: Array = inside & (device.events.tensor[event] == rows) & np.isin(device.events.action[event], _FREES)
    return own
