"""A common axis for events of several traces: training steps, or the fraction of the trace.

Traces of one program with two settings have different numbers of events, but the same steps. Events before the first
step take the length of one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from memdiag.results.compare import Curves
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array
from memdiag.views.timeline import step_starts

PARTS = 240  # number of parts of the axis, with one value per curve each


@dataclass(frozen=True)
class Axis:
    """Maps events of one device to positions.

    Attributes:
        edges: Events, ascending, from 0 to ``num_events``.
        places: Their positions.
        first_step: The first step, or None if positions are fractions.
        num_steps: Number of steps.
    """

    edges: Array
    places: Array
    first_step: int | None
    num_steps: int

    @classmethod
    def by_share(cls, device: DeviceTrace) -> Axis:
        """Returns the axis from beginning to end of a trace, 0 to 1."""
        return cls(np.array([0, max(device.num_events, 1)]), np.array([0.0, 1.0]), None, 0)

    @classmethod
    def by_step(cls, device: DeviceTrace) -> Axis | None:
        """Returns the axis of steps, with the first one from 0 to 1, or None if the trace has none."""
        starts = step_starts(device)
        highest = np.maximum.accumulate(starts["step"]) if len(starts["step"]) else starts["step"]
        is_new = np.diff(highest, prepend=-1) > 0
        event, step = starts["event"][is_new], starts["step"][is_new].astype(np.int64)
        if not len(step):
            return None
        first = int(step[0])
        edges, places = np.append(event, device.num_events), np.append(step - first, step[-1] - first + 1).astype(float)
        if event[0] > 0:
            edges, places = np.append(0, edges), np.append(-1.0, places)
        return cls(edges, places, first, len(step))

    def place(self, event: Array) -> Array:
        """Returns the positions of events (float64); -1, the moment before the first, has the position of the first."""
        return np.asarray(np.interp(event, self.edges, self.places), np.float64)


def axes_of(devices: list[DeviceTrace]) -> tuple[Literal["step", "share"], list[Axis]]:
    """Returns one axis per device: of steps, if all have them."""
    steps = [Axis.by_step(device) for device in devices]
    known = [axis for axis in steps if axis is not None]
    if len(known) == len(devices):
        return "step", known
    return "share", [Axis.by_share(device) for device in devices]


def curves_of(devices: list[DeviceTrace]) -> Curves | None:
    """Returns the curves of several devices on one axis, or None if fewer than two have any.

    Steps are aligned by number if the traces have one in common, otherwise by order.
    """
    if sum(device.num_events > 1 for device in devices) < 2:
        return None
    aligned_by, axes = axes_of(devices)
    shifts = [0] * len(axes)
    firsts: tuple[int, ...] | None = None
    if aligned_by == "step":
        firsts = tuple(axis.first_step or 0 for axis in axes)
        ends = [first + int(axis.places[-1]) for first, axis in zip(firsts, axes, strict=True)]
        if max(firsts) < min(ends):
            shifts = [first - min(firsts) for first in firsts]
            firsts = (min(firsts),) * len(axes)
    start = min(float(axis.places[0]) + shift for axis, shift in zip(axes, shifts, strict=True))
    end = max(float(axis.places[-1]) + shift for axis, shift in zip(axes, shifts, strict=True))

    def drawn(name: str) -> tuple[tuple[int, ...], ...]:
        return tuple(
            _curve(device, name, axis, shift, start, end)
            for device, axis, shift in zip(devices, axes, shifts, strict=True)
        )

    return Curves(aligned_by, start, end, firsts, drawn("reserved"), drawn("allocated"))


def _curve(device: DeviceTrace, name: str, axis: Axis, shift: int, start: float, end: float) -> tuple[int, ...]:
    """Returns the highest value in each part of the axis.

    A part without events has the preceding value, and -1 outside the trace.
    """
    n = device.num_events
    values = np.full(PARTS, -1, np.int64)
    if not n:
        return tuple(values.tolist())
    scale = PARTS / max(end - start, 1e-9)
    part = np.clip(((axis.place(np.arange(n)) + shift - start) * scale).astype(np.int64), 0, PARTS - 1)
    np.maximum.at(values, part, device.usage[name])
    last = np.full(PARTS, -1, np.int64)
    last[part] = np.arange(n)  # the last event of each part
    last = np.maximum.accumulate(last)
    until = min(int(np.ceil((float(axis.places[-1]) + shift - start) * scale)), PARTS)
    empty = (values < 0) & (last >= 0) & (np.arange(PARTS) < until)
    values[empty] = device.usage[name][last[empty]]
    return tuple(values.tolist())
