"""Results of ``memdiag try``: the prediction for a rerun with other allocator settings, and its measurement."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.results.outlook import Outlook
from memdiag.text import Phrase


@dataclass(frozen=True)
class LastFailure:
    """The last failed allocation of a run of one rank.

    Attributes:
        requested_bytes: Size of the request.
        step: Training step of the failure; -1: unknown.
        phase: Phase of the step; "": unknown.
        num_allocations: Allocations served before the failure.
        is_last: Whether nothing was allocated after the failure.
    """

    requested_bytes: int
    step: int
    phase: str
    num_allocations: int
    is_last: bool


@dataclass(frozen=True)
class RankForecast:
    """The prediction for one rank.

    Attributes:
        name: File of its trace.
        peak_bytes: Predicted reserved peak; ``recorded_bytes`` is the recorded one.
        num_ooms: Predicted failed allocations.
        outlook: Whether the run fits, if the recording shows it.
        calibrated: How exactly a replay of the recorded settings reproduces the recording.
    """

    name: str
    peak_bytes: int
    recorded_bytes: int
    num_ooms: int
    outlook: Outlook
    calibrated: Phrase


@dataclass(frozen=True)
class RunForecast:
    """The prediction for a rerun.

    Attributes:
        command: The command as a shell line.
        cwd: The directory in which it runs.
        phantom: The simulated device; None: a real one.
        variable: The environment variable of the settings.
        conf: The settings to try.
        ranks: By rank.
    """

    command: str
    cwd: str
    phantom: str | None
    variable: str
    conf: str
    ranks: tuple[RankForecast, ...]


@dataclass(frozen=True)
class RankComparison:
    """Prediction and measurement of one rank, over the allocations that both runs share.

    Attributes:
        name: File of the rank's trace.
        num_shared_allocations: Allocations that both runs share.
        num_recorded_allocations: Allocations of the recorded run.
        num_measured_allocations: Allocations of the new run.
        recorded_peak_bytes: Reserved peak of the recorded run over the shared part.
        predicted_peak_bytes: Predicted reserved peak over the shared part.
        measured_peak_bytes: Reserved peak of the new run over the shared part.
        num_recorded_ooms: Failed allocations of the recorded run in the shared part.
        num_predicted_ooms: Predicted failed allocations in the shared part.
        num_measured_ooms: Failed allocations of the new run in the shared part.
        whole_run_peak_bytes: Reserved peak of the whole new run.
        whole_run_num_ooms: Failed allocations of the whole new run.
        calibration: How exactly a replay of the recorded settings reproduces the recording.
        recorded_failure: Last failed allocation of the recorded run; null: none failed.
        measured_failure: Last failed allocation of the new run; null: none failed.
        outcome: "runs_to_its_end", "fails_again", "fails_at_the_same_allocation", "fails_earlier" or
            "ends_with_another_error".
    """

    name: str
    num_shared_allocations: int
    num_recorded_allocations: int
    num_measured_allocations: int
    recorded_peak_bytes: int
    predicted_peak_bytes: int
    measured_peak_bytes: int
    num_recorded_ooms: int
    num_predicted_ooms: int
    num_measured_ooms: int
    whole_run_peak_bytes: int
    whole_run_num_ooms: int
    calibration: str
    recorded_failure: LastFailure | None = None
    measured_failure: LastFailure | None = None
    outcome: str = ""

    @property
    def error_bytes(self) -> int:
        """Predicted peak - measured peak."""
        return self.predicted_peak_bytes - self.measured_peak_bytes


@dataclass(frozen=True)
class TryReport:
    """A rerun compared with its prediction.

    Attributes:
        variable: The environment variable of the settings.
        conf: The settings that were tried.
        exit_status: Exit status of the command.
        folder: The folder of the new run.
        ranks: By rank; ranks that left no trace are missing.
    """

    variable: str
    conf: str
    exit_status: int
    folder: str
    ranks: tuple[RankComparison, ...]
