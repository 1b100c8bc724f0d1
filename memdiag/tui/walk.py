"""The current position in a trace (device, moment, visible range), and navigation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Literal

from memdiag import vocabulary
from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import DEFAULT, MOMENTS, choose_moment, require_moment
from memdiag.trace.table import Array
from memdiag.tui.curve_lines import Curve
from memdiag.tui.models.at_cursor import Moment, Places, beyond, moment, totals
from memdiag.tui.models.call_tree import CallTree
from memdiag.tui.models.live_rows import LiveRows
from memdiag.tui.models.window import Window, highest_in

Kind = Literal["ooms", "retries", "steps"]
By = Literal["category", "lifetime"]
ZOOM = 2.0
PAN = 0.25


class OneDevice:
    """A device of a trace with its cached data."""

    def __init__(self, trace: Trace, device: DeviceTrace) -> None:
        self.trace = trace
        self.device = device
        self.places = Places(device)
        self.curve = Curve(device, self.places)
        self.at = choose_moment(device).event
        self.window = Window.whole(device.num_events)

    @cached_property
    def live(self) -> LiveRows:
        """The tensors live at a moment."""
        return LiveRows(self.trace, self.device)

    @cached_property
    def calls(self) -> CallTree:
        """The call tree."""
        return CallTree(self.trace, self.device)


class Walk:
    """Navigates through a trace. Navigation methods return a text to show, or "".

    Attributes:
        by: Classes of totals and colours.

    Args:
        trace: The trace.
        at: Initial moment: a name or an event, as in ``memdiag.trace.moments``.
        device: Initial device, or None for the one with the most memory.

    Raises:
        MemdiagError: The device, the event or an out-of-memory event does not exist, or the trace has no device.
    """

    def __init__(self, trace: Trace, at: str | int = DEFAULT, device: int | None = None) -> None:
        self.trace = trace
        self.by: By = "category"
        self._totals: tuple[object, list[tuple[str, int]]] = (None, [])
        self._devices = [OneDevice(trace, each) for each in trace.devices]
        if not self._devices:
            raise MemdiagError(phrase("screen.no-device", path=trace.path), phrase("screen.no-device.hint"))
        self._number = self._chosen(device)
        self._begin(at)

    @property
    def here(self) -> OneDevice:
        """The device that is shown."""
        return self._devices[self._number]

    @property
    def num_devices(self) -> int:
        """Devices of the trace."""
        return len(self._devices)

    @property
    def at(self) -> int:
        """The current moment is after this event, or before the first if -1."""
        return self.here.at

    def moment(self) -> Moment:
        """Returns the facts about the moment."""
        return moment(self.trace, self.here.device, self.at)

    def totals(self) -> list[tuple[str, int]]:
        """Returns the bytes in memory at the moment, by category or lifetime, the largest first."""
        key = self.here.device.device, self.at, self.by
        if self._totals[0] != key:
            self._totals = key, totals(self.here.device, self.at, self.by)
        return self._totals[1]

    def next_by(self) -> str:
        """Switches between categories and lifetimes. The totals show which."""
        self.by = "lifetime" if self.by == "category" else "category"
        return ""

    def go(self, at: int) -> str:
        """Goes to an event, or to the nearest end of the trace."""
        here = self.here
        here.at = min(max(at, -1), here.device.num_events - 1)
        if here.device.num_events:
            here.window = here.window.showing(here.at)
        return ""

    def by_events(self, number: int) -> str:
        """Moves by events."""
        return self.go(self.at + number)

    def by_columns(self, number: int, width: int) -> str:
        """Moves by columns of a timeline of ``width``: to the event with the most allocated bytes in that column."""
        here = self.here
        if len(here.window) <= width:
            return self.by_events(number)
        column = here.window.column_of(self.at, width)
        if column < 0:
            return self.go(0 if number > 0 else -1)
        if not 0 <= column + number < width and 0 <= self.at + number < here.device.num_events:
            here.window = here.window.pan(PAN if number > 0 else -PAN)
            column = here.window.column_of(self.at, width)
        if column + number < 0:
            return self.go(-1)
        if column + number >= width:
            return self.go(here.device.num_events - 1)
        return self.to_column(column + number, width)

    def to_column(self, column: int, width: int) -> str:
        """Goes to the event with the most allocated bytes in a column of the timeline."""
        here = self.here
        return self.go(highest_in(here.device, here.window, column, width) if len(here.window) else -1)

    def to_peak(self) -> str:
        """Goes to the peak, and from there to the reserved and the allocated peak, if these are other events."""
        peaks: dict[int, str] = {}
        for name in ("peak", "reserved", "allocated"):
            peaks.setdefault(choose_moment(self.here.device, name).event, name)
        events = list(peaks)
        following = (events.index(self.at) + 1) % len(events) if self.at in peaks else 0
        return self.to_moment(peaks[events[following]])

    def to_moment(self, name: str) -> str:
        """Goes to a moment with a name that ``--at`` accepts."""
        there = choose_moment(self.here.device, name).event
        self.go(there)
        title = vocabulary.title(name)
        return title if there >= 0 else phrase("screen.moment.before", moment=title)

    def to_next(self, kind: Kind, *, back: bool = False) -> str:
        """Goes to the next or previous event of a kind."""
        events: Array = getattr(self.here.places, kind)
        if not len(events):
            return phrase(f"screen.{kind}-none")
        found = beyond(events, self.at, back=back)
        if found is None:
            return phrase(f"screen.{kind}-none-{'before' if back else 'after'}", count=len(events))
        self.go(found)
        return phrase(f"screen.{kind}-at", number=int((events <= found).sum()), count=len(events))

    def to_text(self, text: str) -> str:
        """Goes to the position in a text.

        It may be an event number, ``50%``, a name that ``--at`` accepts, ``start``, or ``step 3``.
        """
        words = text.strip().lower().replace(",", "").replace("_", "")
        named: dict[str, Callable[[], str]] = {
            "": lambda: "",
            "peak": partial(self.to_moment, "peak"),
            "oom": lambda: self.to_next("ooms"),
            "start": lambda: self.go(0),
            **{name: partial(self.to_moment, name) for name in ("allocated", "reserved", "end")},
        }
        if words in named:
            return named[words]()
        digits = words.removeprefix("event").removeprefix("step").removesuffix("%").strip()
        if not digits.removeprefix("-").isdecimal() or len(digits) > 15:
            return phrase("screen.no-event", text=text.strip()[:40], moments=", ".join(MOMENTS))
        number = int(digits)
        if words.endswith("%"):
            return self.go(round(min(number, 100) / 100 * (self.here.device.num_events - 1)))
        if not words.startswith("step"):
            return self.go(number)
        of_step = (self.here.device.events.step == number).nonzero()[0]
        return self.go(int(of_step[0])) if len(of_step) else phrase("screen.no-step", step=str(number))

    def zoom(self, factor: float, at: int | None = None) -> str:
        """Shows a shorter or longer range around the moment (or another one)."""
        here = self.here
        if not len(here.window):
            return ""
        centre = max(self.at if at is None else at, 0)
        before = here.window
        here.window = before.zoom(centre, factor)
        if at is None:
            here.window = here.window.showing(self.at)
        if before == here.window:
            return phrase("screen.zoom.whole" if factor > 1 else "screen.zoom.closest")
        return ""

    def pan(self, share: float) -> str:
        """Moves the visible range without changing the moment."""
        self.here.window = self.here.window.pan(share)
        return ""

    def zoom_out_fully(self) -> str:
        """Shows the whole trace."""
        self.here.window = Window.whole(self.here.device.num_events)
        return ""

    def next_device(self) -> str:
        """Shows the next device."""
        if len(self._devices) == 1:
            return phrase("screen.one-device")
        self._number = (self._number + 1) % len(self._devices)
        return phrase("report.device", device=str(self.here.device.device))

    def _chosen(self, device: int | None) -> int:
        numbers = [each.device.device for each in self._devices]
        if device is None:
            held = [each.device.most_held_bytes for each in self._devices]
            return held.index(max(held))
        if device not in numbers:
            devices = ", ".join(map(str, numbers))
            raise MemdiagError(
                phrase("screen.missing-device", device=str(device)),
                phrase("screen.missing-device.hint", devices=devices),
            )
        return numbers.index(device)

    def _begin(self, at: str | int) -> None:
        require_moment([self.here.device], at)
        self.go(choose_moment(self.here.device, at).event)
