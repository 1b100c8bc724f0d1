"""Possible readings of an ambiguous recording: reasons for releases, private pools that never split, and captures.

A recording contains none of these facts, only their effects. A CUDA graph capture waits for no events, so it releases
no cached memory when the driver has no more. In a pool that does not split, a block is a whole segment. The private
pool of a graph is used only in captures. A pool that the program made can be used inside and outside of captures; a
capture is a run of requests without requests of other pools between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from memdiag.allocator.calibration.causes import Divergence
from memdiag.allocator.calibration.from_trace import described
from memdiag.allocator.calibration.limits import Limits
from memdiag.allocator.workload import ALLOC, CAPTURE, Workload
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array

_RELEASES = (schema.SEGMENT_FREE, schema.SEGMENT_UNMAP)


@dataclass(frozen=True)
class Interpretation:
    """One interpretation of an ambiguous recording.

    Attributes:
        collects: Whether there is garbage collection; None: decided from the entries.
        asked_for: Requests (events) before which the program itself released memory, although the requests seem to have
            released it.
        refused: Requests (events) that the driver refused at first, although the program seems to have released the
            memory.
        no_split: Pools (index) whose blocks are not split.
        other_kind: Pools whose use in captures differs from that implied by their ids.
        turned: Runs of requests of one pool (first and last event) whose capture state differs from that of the pool. A
            later run inverts an earlier one.
    """

    collects: bool | None = None
    asked_for: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    no_split: frozenset[int] = frozenset()
    other_kind: frozenset[int] = frozenset()
    turned: tuple[tuple[int, int], ...] = ()

    def described(self, trace: Trace, device: DeviceTrace) -> tuple[Workload, Limits]:
        """Returns the workload under this reading, and the limits of the allocator's memory."""
        workload, limits = described(
            trace, device, collects=self.collects, asked_for=self.asked_for, refused=self.refused
        )
        workload = replace(
            workload, no_split=workload.no_split | self.no_split, captured=workload.captured ^ self.other_kind
        )
        for first, last in self.turned:
            workload = _with_turned(workload, _call_of(workload, first), _call_of(workload, last))
        return workload, limits

    def others(self, device: DeviceTrace, workload: Workload, first: Divergence) -> Iterator[Interpretation]:
        """Yields other readings that may explain the first difference; ``workload`` is that of this reading."""
        call = _call_of(workload, first.event)
        if call < 0:
            following = np.flatnonzero((workload.op == ALLOC) & (workload.row > first.event))
            request = int(workload.row[following[0]]) if len(following) else -1
            if request >= 0 and device.events.action[first.event] in _RELEASES and request not in self.refused:
                yield replace(self, refused=(*self.refused, request))
            return
        if (
            first.lacks_release
            and first.event not in self.asked_for
            and device.events.action[first.event] == schema.ALLOC
        ):
            yield replace(self, asked_for=(*self.asked_for, first.event))
        pool = int(workload.pool[call])
        if pool <= 0:
            return
        if pool not in self.no_split:
            yield replace(self, no_split=self.no_split | {pool})
        if pool not in self.other_kind:
            yield replace(self, other_kind=self.other_kind | {pool})
        begin, end = _run_of_requests(workload, call)
        for run in dict.fromkeys(((begin, end), (call, end), (begin, call))):
            events = int(workload.row[run[0]]), int(workload.row[run[1]])
            if events not in self.turned:
                yield replace(self, turned=(*self.turned, events))


def _call_of(workload: Workload, event: int) -> int:
    """Returns the call of the request at an event; -1 if the event is not a request."""
    here = np.flatnonzero((workload.op == ALLOC) & (workload.row == event))
    return int(here[0]) if len(here) else -1


def _is_captured(workload: Workload, call: int) -> bool:
    """Returns whether this reading assumes a graph capture in the pool of the request ``call``."""
    pool = workload.pool[call]
    said = np.flatnonzero((workload.op[:call] == CAPTURE) & (workload.pool[:call] == pool))
    return bool(workload.size[said[-1]]) if len(said) else int(pool) in workload.captured


def _run_of_requests(workload: Workload, call: int) -> tuple[int, int]:
    """Returns first and last call of the run of requests around ``call`` without requests of other pools."""
    requests = np.flatnonzero(workload.op == ALLOC)
    at = int(np.searchsorted(requests, call))
    others = np.flatnonzero(workload.pool[requests] != workload.pool[call])
    k = int(np.searchsorted(others, at))
    first = int(others[k - 1]) + 1 if k else 0
    last = int(others[k]) - 1 if k < len(others) else len(requests) - 1
    return int(requests[first]), int(requests[last])


def _with_turned(workload: Workload, first: int, last: int) -> Workload:
    """Returns the workload with the assumed capture state of the first request inverted for ``first`` to ``last``."""
    kind, pool = _is_captured(workload, first), workload.pool[first]
    call = np.arange(len(workload.op))
    kept = ~((workload.op == CAPTURE) & (workload.pool == pool) & (call >= first) & (call <= last))

    def put(column: Array, at_first: int, behind_last: int) -> Array:
        parts = (
            column[:first],
            [at_first],
            column[first : last + 1][kept[first : last + 1]],
            [behind_last],
            column[last + 1 :],
        )
        return np.concatenate([np.asarray(part, column.dtype) for part in parts])

    rows = int(workload.row[first - 1]) if first else -1, int(workload.row[last])
    return replace(
        workload,
        op=put(workload.op, CAPTURE, CAPTURE),
        tensor=put(workload.tensor, -1, -1),
        size=put(workload.size, int(not kind), int(_is_captured(workload, last))),
        stream=put(workload.stream, -1, -1),
        pool=put(workload.pool, pool, pool),
        row=put(workload.row, *rows),
    )
