"""State shared by all analyzers of one run: the options, and cached results that several of them need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import DEFAULT, choose_moment, require_moment
from memdiag.trace.table import Array


@dataclass(frozen=True)
class Context:
    """Options of one analysis and a cache.

    Attributes:
        at: The moment of the report: a name or an event, as in ``memdiag.trace.moments``.
        top: Number of call sites, tensors or segments in a list.
        device: Index of the only device to analyze, or None for all.
    """

    at: str | int = DEFAULT
    top: int = 10
    device: int | None = None
    _views: dict[int, DeviceView] = field(default_factory=dict, repr=False, compare=False)

    def views(self, trace: Trace) -> Iterator[DeviceView]:
        """Yields the devices to analyze: the chosen one, or all with data.

        Raises:
            MemdiagError: The chosen device, event, or an out-of-memory event is not in the trace.
        """
        chosen = [d for d in trace.devices if self.device is None or d.device == self.device]
        if self.device is not None and not chosen:
            have = ", ".join(str(d.device) for d in trace.devices) or "none"
            raise MemdiagError(
                phrase("errors.no-device", device=str(self.device)), phrase("errors.devices", have=str(have))
            )
        require_moment(chosen, self.at)
        for device in chosen:
            if device.device not in self._views:
                self._views[device.device] = DeviceView(trace, device, *choose_moment(device, self.at))
            yield self._views[device.device]


@dataclass(frozen=True)
class DeviceView:
    """One device at one moment.

    Attributes:
        at: The moment is after this event, or before the first event if -1.
        kind: Kind of moment, see ``memdiag.trace.moments.ChosenMoment``.
    """

    trace: Trace
    device: DeviceTrace
    at: int
    kind: str = "event"

    @cached_property
    def live(self) -> Array:
        """Rows of the tensors in memory at the moment, including those waiting for a stream."""
        return self.device.live(self.at, pending=True)

    def label(self, stack: int) -> str:
        """Returns the short name of a stack, or "" for none."""
        return self.trace.stacks.label(stack)
