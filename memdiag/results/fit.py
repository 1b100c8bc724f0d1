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
        values: Its values, as they are inserted into the command.
        is_growing: Whether a larger value is assumed to need at least as much memory.
        is_shrinking: Whether a larger or later value is assumed to need at most as much memory.
    """

    name: str
    values: tuple[str, ...]
    is_growing: bool = False
    is_shrinking: bool = False

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
        usable_bytes: The part of it that PyTorch's allocator can reserve.
        recorded_on: The device whose runs are replayed for it: of the same kind, with unlimited memory.
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
        rank: Its rank; null: the command ran without ``--world``.
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
        basis: "run": this configuration was run; "inferred": a run with smaller or larger values decides it; "error":
            the command failed.
        peak_allocated_bytes: Allocated peak of the heaviest process; null: not run.
        peak_reserved_bytes: Reserved peak of the heaviest process on this device, or with unlimited memory if it fails;
            null: not run.
        headroom_bytes: Usable memory minus the reserved peak if it fits; otherwise the memory of the device minus that
            of the smallest device on which it runs, which is negative; null: not run.
        unknown_bytes: Upper bound of scratch memory of cuDNN that a device may use beyond the recording; null: not run.
        rank: Rank of the heaviest process; null: not run, or without ``--world``.
        smallest_total_bytes: Memory of the smallest device of this kind on which it runs; null: not run.
        setting: Allocator setting with which it fits although it fails without; null: none is needed or known.
        decided_by: The run that decides an inferred outcome, by the values that differ, such as "mbs=4"; null: not
            inferred.
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
class FitReport:
    """All configurations on all devices.

    Attributes:
        command: The command, with its placeholders.
        axes: The placeholders and their values.
        devices: The devices.
        cells: The configurations, in the order of the grid.
        num_excluded: Combinations of values that ``--where`` excluded.
        num_runs: Configurations that were run, for each kind of device.
        num_reused: Of these, those that an earlier search in the same folder had run.
        margin: Safety margin, as a share of the reserved peak.
        notes: Assumptions and limits.
        folder: Folder of the search.
    """

    command: str
    axes: tuple[GridAxis, ...]
    devices: tuple[FitDevice, ...]
    cells: tuple[FitCell, ...]
    num_excluded: int
    num_runs: int
    num_reused: int
    margin: float
    notes: tuple[str, ...]
    folder: str

    def label(self, cell: FitCell) -> str:
        """Returns the values of a configuration: "tp=2 mbs=4"."""
        return " ".join(f"{axis.name}={value}" for axis, value in zip(self.axes, cell.values, strict=True))

    def fitting(self, device: int) -> tuple[FitCell, ...]:
        """Returns the configurations that fit on a device, including those with little headroom."""
        return tuple(cell for cell in self.cells if cell.on[device].outcome in {FITS, TIGHT})

    @property
    def closest(self) -> tuple[FitCell, DeviceFit] | None:
        """The run that misses the least memory, and the device; None if one fits or none ran."""
        known = [
            (on.headroom_bytes, cell, on)
            for cell in self.cells
            for on in cell.on
            if on.outcome == FAILS and on.headroom_bytes is not None
        ]
        if not known or any(self.fitting(number) for number in range(len(self.devices))):
            return None
        _, cell, on = max(known, key=lambda entry: entry[0])
        return cell, on
