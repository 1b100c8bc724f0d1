"""Measures a recorded run on each device: its peaks, whether it fits, and the smallest device, by exact replays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from memdiag.allocator.subject import Subject
from memdiag.allocator.tuning.smallest import smallest_capacity
from memdiag.errors import MemdiagError
from memdiag.recorder.run_folder import traces
from memdiag.results.fit import FitDevice
from memdiag.runs.listener import Listener
from memdiag.runs.outlook import is_failing
from memdiag.text import phrase


@dataclass(frozen=True)
class OnDevice:
    """A process on one device; bytes as in ``memdiag.results.fit.DeviceFit``."""

    fits: bool
    peak_reserved_bytes: int
    headroom_bytes: int


@dataclass(frozen=True)
class Need:
    """What a process needs.

    Attributes:
        trace: Its trace.
        peak_allocated_bytes: Allocated peak.
        peak_reserved_bytes: Reserved peak with unlimited memory.
        smallest_total_bytes: Memory of the smallest device of its kind.
        on: Each device, in order.
        calibration_error_bytes: Error of the replay of the recorded settings; 0: exact.
        num_steps: Training steps that were recorded.
        unknown_bytes: Upper bound of scratch memory of cuDNN that a card may use beyond the recording.
    """

    trace: Path
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    smallest_total_bytes: int | None
    on: tuple[OnDevice, ...]
    calibration_error_bytes: int
    num_steps: int
    unknown_bytes: int


def measure(folder: Path, devices: Sequence[FitDevice], listener: Listener) -> list[Need]:
    """Returns the peaks of each recorded process of a run, and whether it fits.

    Processes that did not use the device are omitted.

    Args:
        folder: Folder with the traces of the run.
        devices: Devices to judge it on, of the kind that it was recorded on.
        listener: Receives progress.

    Raises:
        MemdiagError: Nothing was recorded.
    """
    paths = [Path(path) for path in traces(str(folder))]
    found = [_need(path, subject, devices) for path in paths for subject in subjects_of(path, devices[0], listener)]
    if not found:
        raise MemdiagError(phrase("fit.nothing-recorded"), phrase("fit.nothing-recorded.hint"))
    return found


def subjects_of(path: Path, device: FitDevice, listener: Listener) -> Iterator[Subject]:
    """Yields the recorded processes of a trace that used the device, prepared for replays on devices of one kind."""
    trace = listener.read_trace(path)
    context = device.total_bytes - device.usable_bytes
    for recorded in trace.devices:
        if not recorded.num_events:
            continue
        subject = Subject.of(trace, recorded)
        # A short program may end before memory outside the allocator is sampled.
        yield subject.with_outside(context) if subject.most_outside < context else subject


def _need(path: Path, subject: Subject, devices: Sequence[FitDevice]) -> Need:
    unlimited = replace(subject.recorded, capacity_bytes=None)
    replayed = subject.replay(unlimited, log=False)
    peaks = {name: int(getattr(replayed, name).max(initial=0)) for name in ("reserved", "allocated")}
    outside = subject.most_outside
    smallest = smallest_capacity(
        lambda size: subject.replay(replace(subject.recorded, capacity_bytes=size), log=False), outside
    )
    steps = subject.device.events.step
    recorded = subject.trace.recorded
    scratch = None if recorded is None else recorded.ended.scratch
    return Need(
        path,
        peaks["allocated"],
        peaks["reserved"],
        smallest,
        tuple(_on(subject, device, peaks["reserved"], smallest) for device in devices),
        subject.calibration.error_bytes or 0,
        int(steps.max(initial=-1)) + 1,
        0 if scratch is None else scratch.more_bytes,
    )


def _on(subject: Subject, device: FitDevice, peak: int, smallest: int | None) -> OnDevice:
    room = device.total_bytes - subject.most_outside
    if peak <= room:
        return OnDevice(True, peak, room - peak)
    replayed = subject.replay(subject.on_card(device.total_bytes), log=False)
    if not is_failing(replayed):
        reserved = int(replayed.reserved.max(initial=0))
        return OnDevice(True, reserved, room - reserved)
    # The allocator returns cached segments before it fails, so a failing run may need less than its reserved peak.
    missing = peak - room if smallest is None else smallest - device.total_bytes
    return OnDevice(False, peak, -missing)
