"""The data of the pictures that ``memdiag plot`` draws: curves, marks and areas in events and bytes, thinned to what can be seen.

Columns are tuples of plain integers. They have some values for each column of pixels, however long the trace is.
"""

from __future__ import annotations

from dataclasses import dataclass

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class PlotCurve:
    """Bytes after some of the events; they hold until the next of them."""

    name: str
    at: Numbers
    bytes: Numbers


@dataclass(frozen=True)
class PhaseBand:
    """A stretch of events of one phase, ``end`` not included."""

    start: int
    end: int
    name: str


@dataclass(frozen=True)
class PlotMark:
    """The moment of a picture: the event, and the bytes of a curve there.

    Attributes:
        at: The event.
        bytes: Bytes of the curve there.
        title: Its name: "peak", "out of memory", "chosen event", …
        words: The bytes and the event.
        highest: The most bytes that the curve has anywhere.
    """

    at: int
    bytes: int
    title: str
    words: str
    highest: int


@dataclass(frozen=True)
class PlotFrame:
    """Facts of a run beside its curves.

    Attributes:
        facts: The file, its device and its size; the first ones matter most.
        num_events: Events of the trace.
        bands: Phases, in order; empty if none is known.
        steps: First event and number of each training step.
        retries, ooms: Events at which the allocator released cached memory for a request, and at which memory ran out.
        asked_bytes: Size of the last failed allocation.
        capacity_bytes: Bytes of the device; None: unknown.
        notes: Limits to know when reading the picture.
    """

    facts: tuple[str, ...]
    num_events: int
    bands: tuple[PhaseBand, ...]
    steps: tuple[tuple[int, int], ...]
    retries: tuple[int, ...]
    ooms: tuple[int, ...]
    asked_bytes: int
    capacity_bytes: int | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class TimelinePlot:
    """A curve is None if the file does not have it; ``active`` also if no freed block ever waited for a stream."""

    frame: PlotFrame
    reserved: PlotCurve | None
    active: PlotCurve | None
    allocated: PlotCurve | None
    moment: PlotMark


@dataclass(frozen=True)
class FragmentationPlot:
    """The split of reserved memory.

    Attributes:
        frame: Of the whole run.
        at: Events.
        requested: Bytes that live tensors requested, at each of them.
        parts: Bytes of each part, bottom to top; with ``requested`` they add up to what is reserved.
        moment: The moment of the report, and what is reserved then.
        at_moment: Bytes of ``requested`` and of each part there.
    """

    frame: PlotFrame
    at: Numbers
    requested: Numbers
    parts: dict[str, Numbers]
    moment: PlotMark
    at_moment: dict[str, int]


@dataclass(frozen=True)
class LifetimeLayer:
    """One lifetime class: its key, its name, what it means, bytes at each event, bytes at the moment of the report."""

    key: str
    name: str
    meaning: str
    bytes: Numbers
    at_moment: int


@dataclass(frozen=True)
class LifetimesPlot:
    """Bytes of blocks, pending ones included, by lifetime; layers from the bottom up, only those that ever hold anything."""

    frame: PlotFrame
    at: Numbers
    layers: tuple[LifetimeLayer, ...]
    moment: PlotMark


@dataclass(frozen=True)
class MapRow:
    """One row: the name of its pool (most important part first; empty if the pool continues), and its segments as [start, end) in bytes."""

    name: tuple[str, ...]
    segments: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class MapPlot:
    """A map of memory.

    Attributes:
        frame: Of the whole run; its facts name the moment.
        row_bytes: Bytes from the left to the right of a row.
        rows: From the top down.
        pieces: By kind (a lifetime, "pending", or the cause of free memory): row, start and length in bytes of each.
        amounts: Bytes of each kind, in the order of the legend: (kind, name, bytes).
    """

    frame: PlotFrame
    row_bytes: int
    rows: tuple[MapRow, ...]
    pieces: dict[str, tuple[tuple[int, int, int], ...]]
    amounts: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class SimulatedCurve:
    """One simulated run.

    Attributes:
        label: Policy and settings.
        reserved: Its curve, over the events of the recording.
        peak_bytes: The most that it reserved.
        saved_bytes: Recorded peak - this one; None: the recorded peak is not known.
        failed_at: The first event at which it ran out of memory; None: it did not.
        num_failed: How often it did.
    """

    label: str
    reserved: PlotCurve
    peak_bytes: int
    saved_bytes: int | None
    failed_at: int | None
    num_failed: int


@dataclass(frozen=True)
class PoliciesPlot:
    """``recorded`` is None where the file does not know it; ``allocated`` is what the recorded run handed out."""

    frame: PlotFrame
    recorded: PlotCurve | None
    allocated: PlotCurve | None
    recorded_peak: int | None
    runs: tuple[SimulatedCurve, ...]
