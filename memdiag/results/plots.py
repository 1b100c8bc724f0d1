"""The data of the plots of ``memdiag plot``: curves, marks and areas in events and bytes, thinned to plot resolution.

Columns are tuples of plain integers. Their length depends on the resolution of the plot, not on the length of the
trace.
"""

from __future__ import annotations

from dataclasses import dataclass

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class PlotCurve:
    """Bytes after some of the events; each value holds until the next."""

    name: str
    at: Numbers
    bytes: Numbers


@dataclass(frozen=True)
class PhaseBand:
    """A range of events of one phase; ``end`` is exclusive."""

    start: int
    end: int
    name: str


@dataclass(frozen=True)
class PlotMark:
    """The moment of a plot: the event, and the bytes of a curve at that event.

    Attributes:
        at: The event.
        bytes: Bytes of the curve at that event.
        title: Its name: "peak", "out of memory", "chosen event", …
        amount: The bytes and the curve.
        place: The event, its step and its phase.
        highest: Highest value of the curve.
    """

    at: int
    bytes: int
    title: str
    amount: str
    place: str
    highest: int


@dataclass(frozen=True)
class PlotFrame:
    """Facts about a run, shown with its curves.

    Attributes:
        facts: The file, its device and its size; the first ones matter most.
        num_events: Events of the trace.
        bands: Phases, in order; empty if none is known.
        steps: First event and number of each training step.
        retries, ooms: Events at which the allocator released cached memory for a request, and at which it ran out of
            memory.
        asked_bytes: Size of the last failed allocation.
        capacity_bytes: Bytes of the device, or None if unknown.
        notes: Limits to know when reading the plot.
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
    """The curves of a run.

    A curve is None if the file does not have it; ``active`` is also None if no freed block ever waited for a stream.
    """

    frame: PlotFrame
    reserved: PlotCurve | None
    active: PlotCurve | None
    allocated: PlotCurve | None
    moment: PlotMark


@dataclass(frozen=True)
class FragmentationPlot:
    """The split of reserved memory.

    Attributes:
        frame: Facts about the whole run.
        at: Events.
        requested: Bytes that live tensors requested, at each event.
        parts: Bytes of each part, bottom to top; together with ``requested`` they add up to reserved bytes.
        moment: The moment of the report, and the reserved bytes at that moment.
        at_moment: Bytes of ``requested`` and of each part at that moment.
    """

    frame: PlotFrame
    at: Numbers
    requested: Numbers
    parts: dict[str, Numbers]
    moment: PlotMark
    at_moment: dict[str, int]


@dataclass(frozen=True)
class LifetimeLayer:
    """One lifetime class: key, name, meaning, bytes at each event, bytes at the moment of the report."""

    key: str
    name: str
    meaning: str
    bytes: Numbers
    at_moment: int


@dataclass(frozen=True)
class LifetimesPlot:
    """Bytes of blocks, including pending ones, by lifetime; layers from the bottom up, without empty ones."""

    frame: PlotFrame
    at: Numbers
    layers: tuple[LifetimeLayer, ...]
    moment: PlotMark


@dataclass(frozen=True)
class CardPlot:
    """The memory of a card over time.

    Attributes:
        frame: Facts about the whole run, without phases and steps.
        total_bytes: Memory of the card.
        at_ms: Milliseconds from the first sample to each sample.
        parts: Bytes of each part in use at each sample, bottom to top; with ``free`` they sum to the card.
        free: Bytes that are free for every process.
        fullest_ms: Time of the sample with the least free memory.
        at_fullest: Bytes of each part and of "free" at that sample.
        failures_ms: Times of out-of-memory errors.
    """

    frame: PlotFrame
    total_bytes: int
    at_ms: Numbers
    parts: dict[str, Numbers]
    free: Numbers
    fullest_ms: int
    at_fullest: dict[str, int]
    failures_ms: Numbers


@dataclass(frozen=True)
class MapRow:
    """One row: the name of its pool (empty if the pool continues), and its segments as [start, end) in bytes."""

    name: tuple[str, ...]
    segments: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class MapPlot:
    """A map of memory.

    Attributes:
        frame: Facts about the whole run; they include the moment.
        row_bytes: Bytes from the left end to the right end of a row.
        rows: From the top down.
        pieces: By kind (a lifetime, "pending", or the cause of free memory): row, start and length in bytes of each
            block.
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
        peak_bytes: Its reserved peak.
        saved_bytes: Recorded peak - this one, or None if the recorded peak is unknown.
        failed_at: The first event at which it ran out of memory, or None if it did not.
        num_failed: Number of failed allocations.
    """

    label: str
    reserved: PlotCurve
    peak_bytes: int
    saved_bytes: int | None
    failed_at: int | None
    num_failed: int


@dataclass(frozen=True)
class PoliciesPlot:
    """``recorded`` is None if the file does not have it; ``allocated`` is the allocated curve of the recorded run."""

    frame: PlotFrame
    recorded: PlotCurve | None
    allocated: PlotCurve | None
    recorded_peak: int | None
    runs: tuple[SimulatedCurve, ...]
