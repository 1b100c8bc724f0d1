"""Curves of simulated runs of one recording, which views draw over each other."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.results.prediction import CalibrationReport, Standing
from memdiag.trace.table import Array


@dataclass(frozen=True)
class SimulatedRun:
    """The curves of one simulated run.

    Attributes:
        label: Name of the run in a picture.
        standing: How far results of the policy can be trusted.
        policy, conf, capacity_bytes: Its settings; "bound" is the lower bound of every allocator.
        device: The device.
        is_recorded: Whether these are the recorded settings.
        peak_bytes: Peak of reserved bytes.
        num_ooms: Failed allocations that the program caught or that ended it.
        event: Event of the recording for each simulated call (int64); several calls may share one.
        reserved, allocated: Bytes after each call.
        failed: Calls that ran out of memory, as positions in ``event``.
    """

    label: str
    policy: str
    conf: str
    capacity_bytes: int | None
    device: int
    is_recorded: bool
    peak_bytes: int
    num_ooms: int
    event: Array
    reserved: Array
    allocated: Array
    failed: Array
    standing: Standing = "native"


@dataclass(frozen=True)
class SimulatedRuns:
    """Simulated runs of one device.

    Attributes:
        runs: The runs.
        saved_bytes: The recorded peak - that of each run; None: the recorded peak is unknown.
        is_foreign: Whether the recording is of another allocator, whose reserved bytes are unknown.
        calibration: How exactly a replay of the recorded settings reproduces the recording.
    """

    runs: tuple[SimulatedRun, ...]
    saved_bytes: tuple[int | None, ...]
    is_foreign: bool
    calibration: CalibrationReport
