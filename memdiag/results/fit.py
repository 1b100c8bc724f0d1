"""Result of ``memdiag fit``: which configurations of a command fit on which devices."""

from __future__ import annotations

from dataclasses import dataclass

FITS, TIGHT, FAILS, UNKNOWN = "fits", "tight", "fails", "unknown"
RUN, INFERRED, ERROR = "run", "inferred", "error"


@dataclass(frozen=True)
class GridAxis:
    """One placeholder and its values.

    Attributes:
        name: Name of the placeholder, without braces.
        values: Values of the placeholder, as they are inserted into the command.
        is_growing: Whether a larger value is assumed to need at least as much memory.
        is_shrinking: Whether a larger or later value is assumed to need at most as much memory.
        is_bracketed: Whether a middle value may be inferred from the outcomes with a smaller and with a larger value.
    """

    name: str
    values: tuple[str, ...]
    is_growing: bool = False
    is_shrinking: bool = False
    is_bracketed: bool = False

    @property
    def is_ordered(self) -> bool:
        """Whether the outcome for one value can decide that for others."""
        return self.is_growing or self.is_shrinking


@dataclass(frozen=True)
class FitDevice:
    """A device that configurations are judged on.

    Attributes:
        name: The device, as ``--phantom`` takes it.
        product: Product name of the manufacturer.
        total_bytes: Memory of the device.
        usable_bytes: Part of this memory that PyTorch's allocator can reserve.
        recorded_on: The simulated device of the same kind, with unlimited memory, whose recordings are replayed for
            this device.
    """

    name: str
    product: str
    total_bytes: int
    usable_bytes: int
    recorded_on: str


@dataclass(frozen=True)
class RankPeak:
    """The peaks of one process of a run.

    Attributes:
        rank: Rank of the process; null: the command ran without ``--world``.
        peak_allocated_bytes: Allocated peak.
        peak_reserved_bytes: Reserved peak with unlimited memory.
    """

    rank: int | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int


@dataclass(frozen=True)
class DeviceFit:
    """One configuration on one device.

    Attributes:
        device: The device.
        outcome: "fits"; "tight" (fits, with less headroom than the safety margin and ``unknown_bytes`` together);
            "fails" (runs out of memory); "unknown" (the command failed for another reason).
        basis: "run": this configuration was run; "inferred": a run with smaller or larger values decides it, or runs
            with both; "error": the command failed.
        peak_allocated_bytes: Allocated peak of the heaviest process; null: not run.
        peak_reserved_bytes: Reserved peak of the heaviest process on this device, or with unlimited memory if it fails;
            null: not run.
        headroom_bytes: If the configuration fits: usable memory minus the reserved peak. Otherwise: memory of the
            device minus that of the smallest device on which the configuration runs, a negative number. null: not run.
        unknown_bytes: Upper bound of scratch memory of cuDNN that a device may use beyond the recording; null: not run.
        rank: Rank of the heaviest process; null: not run, or without ``--world``.
        smallest_total_bytes: Memory of the smallest device of this kind on which the configuration runs; null: not run.
        setting: Allocator settings with which a configuration that fails fits, or a tight one has more headroom; null:
            none is needed or known.
        setting_headroom_bytes: Headroom with that setting; null: no setting.
        decided_by: The run that decides an inferred outcome, by the values that differ, such as "mbs=4", or the runs
            with a smaller and a larger value, such as "pp=1, pp=4"; null: not inferred.
        trace: Trace of the heaviest process; null: not run.
    """

    device: str
    outcome: str
    basis: str
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    headroom_bytes: int | None = None
    unknown_bytes: int | None = None
    rank: int | None = None
    smallest_total_bytes: int | None = None
    setting: str = ""
    setting_headroom_bytes: int | None = None
    decided_by: str = ""
    trace: str = ""


@dataclass(frozen=True)
class FitCell:
    """One configuration.

    Attributes:
        values: Value of each placeholder, in the order of the axes.
        on: The outcome on each device, in the order of the devices.
        ranks: Peaks of the processes that ran, on the kind of device recorded first.
        error: The error that ended the command, in one line; null: none.
        output: File with the output of the command that failed; null: it did not fail.
    """

    values: tuple[str, ...]
    on: tuple[DeviceFit, ...]
    ranks: tuple[RankPeak, ...] = ()
    error: str = ""
    output: str = ""


@dataclass(frozen=True)
class FrontPoint:
    """A run on the Pareto front: no other run is at least as good in every way, and better in one.

    A run is better if it needs a smaller device or fewer ranks, processes more at a time, has larger values on other
    growing axes, or recomputes less.

    Attributes:
        device: The first given device of the kind that it ran on.
        values: Value of each placeholder, in the order of the axes.
        smallest_total_bytes: Memory of the smallest device of this kind on which the configuration runs.
        ranks: Number of ranks; null: without ``--world``.
        at_once: Sequences that all ranks process at a time, or tokens if the sequence length is an axis too: the
            micro-batch times the number of ranks with different data. null: no axis is a micro-batch or a sequence
            length.
        extra_forward_passes: Forward passes that recomputation adds to each step: 0, 1, or 0.5 if it repeats only a
            part and the values do not say how much; null: no axis is about recomputation.
    """

    device: str
    values: tuple[str, ...]
    smallest_total_bytes: int
    ranks: int | None
    at_once: int | None
    extra_forward_passes: float | None


@dataclass(frozen=True)
class AxisEffect:
    """How much one axis changes the reserved peak, measured between two runs that differ in nothing else.

    Attributes:
        name: The axis.
        heavier: Value of the axis in the run with the higher peak.
        lighter: Value of the axis in the run with the lower peak.
        saved_bytes: Difference of the reserved peaks.
    """

    name: str
    heavier: str
    lighter: str
    saved_bytes: int


@dataclass(frozen=True)
class Shortfall:
    """A device on which no configuration fits.

    Attributes:
        device: The device.
        values: The run that misses the least memory.
        missing_bytes: Memory of the smallest device on which that run succeeds, minus the memory of this device.
        setting: Allocator settings with which it fits; null: none is known.
        larger_device: The smallest known device of this backend on which that run succeeds; null: none is known.
        effects: How much each axis of the grid changes the peak, the largest change first.
    """

    device: str
    values: tuple[str, ...]
    missing_bytes: int
    setting: str
    larger_device: str
    effects: tuple[AxisEffect, ...]


@dataclass(frozen=True)
class FitReport:
    """All configurations on all devices.

    Attributes:
        command: The command, with its placeholders.
        axes: The placeholders and their values.
        devices: The devices.
        cells: The configurations, in the order of the grid.
        front: The runs on the Pareto front, for each kind of device: the smallest device first.
        shortfalls: Devices on which nothing fits, and what comes closest.
        num_excluded: Combinations of values that ``--where`` excluded.
        num_runs: Configurations that were run, for each kind of device.
        num_reused: How many of these runs come from an earlier search in the same folder.
        margin: Safety margin, as a share of the reserved peak.
        notes: Assumptions and limits.
        folder: Folder of the search.
    """

    command: str
    axes: tuple[GridAxis, ...]
    devices: tuple[FitDevice, ...]
    cells: tuple[FitCell, ...]
    front: tuple[FrontPoint, ...]
    shortfalls: tuple[Shortfall, ...]
    num_excluded: int
    num_runs: int
    num_reused: int
    margin: float
    notes: tuple[str, ...]
    folder: str

    def label(self, values: tuple[str, ...]) -> str:
        """Returns the values of a configuration: "tp=2 mbs=4"."""
        return " ".join(f"{axis.name}={value}" for axis, value in zip(self.axes, values, strict=True))

    def fitting(self, device: int) -> tuple[FitCell, ...]:
        """Returns the configurations that fit on a device, including those with little headroom."""
        return tuple(cell for cell in self.cells if cell.on[device].outcome in {FITS, TIGHT})
