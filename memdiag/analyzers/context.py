"""What all analyzers of one run share: the options, and answers that several of them need, worked out once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from memdiag.errors import MemdiagError
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array


@dataclass(frozen=True)
class Context:
    """Options of one analysis and a cache.

    Attributes:
        at: Which moment is looked at in detail: "peak" (first event with the highest reserved bytes), "oom" (the last out-of-memory
            event) or the index of an event.
        top: How many sites, tensors or segments a list shows.
        device: Only this device; None: all.
    """

    at: str | int = "peak"
    top: int = 10
    device: int | None = None
    _views: dict[int, DeviceView] = field(default_factory=dict, repr=False, compare=False)

    def views(self, trace: Trace) -> Iterator[DeviceView]:
        """Yields the devices to look at: the chosen one, or all that hold anything.

        Raises:
            MemdiagError: The chosen device, event, or an out-of-memory event is not in the trace.
        """
        chosen = [d for d in trace.devices if self.device is None or d.device == self.device]
        if self.device is not None and not chosen:
            have = ", ".join(str(d.device) for d in trace.devices) or "none"
            raise MemdiagError(f"device {self.device} is not in this trace", f"devices in it: {have}")
        if isinstance(self.at, int) and not any(-1 <= self.at < d.num_events for d in chosen):
            most = max((d.num_events for d in chosen), default=0)
            raise MemdiagError(f"event {self.at} is not in this trace", f"events run from 0 to {most - 1}; -1 is before the first")
        if self.at == "oom" and not any((d.events.action == schema.OOM).any() for d in chosen):
            raise MemdiagError("this trace holds no out-of-memory event", "leave out --at oom, or use --at peak")
        for device in chosen:
            if device.device not in self._views:
                self._views[device.device] = DeviceView(trace, device, self._moment(device))
            yield self._views[device.device]

    def _moment(self, device: DeviceTrace) -> int:
        if isinstance(self.at, int):
            return min(self.at, device.num_events - 1)
        if self.at == "oom":
            ooms = np.flatnonzero(device.events.action == schema.OOM)
            if len(ooms):
                return int(ooms[-1])
        return device.peak_at


@dataclass(frozen=True)
class DeviceView:
    """One device with the moment that is looked at (``at``: an event, -1: before the first)."""

    trace: Trace
    device: DeviceTrace
    at: int

    @cached_property
    def live(self) -> Array:
        """Rows of the tensors that sit in memory at the moment, those waiting for a stream included."""
        return self.device.live(self.at, pending=True)

    def label(self, stack: int) -> str:
        """Short name of a stack; "" for none."""
        return self.trace.stacks.label(stack)
