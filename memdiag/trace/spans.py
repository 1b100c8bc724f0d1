"""Maps spans that the program or a profiler named (external annotations) to the events of a device by time.

PyTorch writes START and END of every ``record_function`` range: ``ProfilerStep#3``, ``Optimizer.step#AdamW.step``,
``Optimizer.zero_grad#AdamW.zero_grad``, and any name such as "forward" or "backward" that the user chose. Events and
annotations share a clock; events without a time (torch_npu) cannot be placed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from memdiag.trace.evidence import BACKWARD, FORWARD, OPTIMIZER, OUTSIDE
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array

_PHASE_NAMES = (
    (re.compile(r"Optimizer\.step#"), OPTIMIZER),
    (re.compile(r"Optimizer\.zero_grad#"), OUTSIDE),
    (re.compile(r"(## )?forward( ##)?$", re.IGNORECASE), FORWARD),
    (re.compile(r"(## )?backward( ##)?$", re.IGNORECASE), BACKWARD),
    (re.compile(r"(## )?optimizer( ##)?$", re.IGNORECASE), OPTIMIZER),
)
_STEP_NAME = re.compile(r"ProfilerStep#\d+$")


@dataclass(frozen=True)
class NamedSpans:
    """Named spans on one device's events; each array has one entry per span, in order of time.

    Attributes:
        first, last: Events in ``[first, last)`` happened within the span.
        phase: Index into PHASES.
        step_starts: Events at which a profiler step begins.
    """

    first: Array
    last: Array
    phase: Array
    step_starts: Array


def lay_out(trace: Trace, device: DeviceTrace) -> NamedSpans:
    """Returns the spans that identify phases and steps, as ranges of events."""
    nothing = np.empty(0, np.int64)
    annotations, time = trace.annotations, device.events.time_us
    known = np.flatnonzero(time >= 0)
    if not len(annotations) or not len(known):
        return NamedSpans(nothing, nothing, nothing, nothing)
    # Threads write slightly out of order; a running maximum makes times searchable.
    clock = np.maximum.accumulate(time[known])
    kinds = {number: kind for number, name in enumerate(trace.strings) if (kind := _kind(name)) is not None}
    mine = (annotations.device == device.device) | (annotations.device < 0)
    rows = np.flatnonzero(mine & (annotations.time_us >= 0) & np.isin(annotations.name, list(kinds)))
    rows = rows[np.argsort(annotations.time_us[rows], kind="stable")]
    where = np.append(known, len(time))[np.searchsorted(clock, annotations.time_us[rows], side="left")]
    spans: list[tuple[int, int, int]] = []
    steps: list[int] = []
    for name in dict.fromkeys(annotations.name[rows].tolist()):
        of_name = annotations.name[rows] == name
        starts, ends = where[of_name & annotations.start[rows]], where[of_name & ~annotations.start[rows]]
        if kinds[name] == _STEP:
            steps += starts.tolist()
            continue
        spans += [(int(first), last, kinds[name]) for first, last in _pairs(starts, ends, len(time))]
    table = np.array(sorted(spans), np.int64).reshape(-1, 3)
    return NamedSpans(table[:, 0], table[:, 1], table[:, 2], np.unique(np.array(steps, np.int64)))


_STEP = -1


def _kind(name: str) -> int | None:
    """Returns the phase that an annotation's name identifies, ``_STEP`` for a profiler step, or None."""
    if _STEP_NAME.match(name):
        return _STEP
    return next((phase for pattern, phase in _PHASE_NAMES if pattern.match(name)), None)


def _pairs(starts: Array, ends: Array, num_events: int) -> list[tuple[int, int]]:
    """Pairs each start with the first end after it that precedes the next start.

    A truncated span ends with the trace.
    """
    after = np.append(starts[1:], num_events)
    found = np.append(ends, num_events)[np.searchsorted(ends, starts, side="left")]
    return [(int(a), int(b)) for a, b in zip(starts, np.minimum(found, after), strict=True)]
