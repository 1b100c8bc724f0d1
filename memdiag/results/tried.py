"""Results of ``memdiag try``: the prediction for a rerun with other allocator settings, and its measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memdiag.results.outlook import Outlook
from memdiag.text import Phrase


@dataclass(frozen=True)
class LastFailure:
    """The last failed allocation of a run of one rank.

    Attributes:
        requested_bytes: Its requested size.
        step, phase: Step and phase of the training; -1 and "" if unknown.
        num_allocations: Successful allocations before it.
        is_last: Whether nothing was allocated after it.
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
        name: File name of its trace.
        peak_bytes: Predicted reserved peak; ``recorded_bytes`` is the recorded one.
        num_ooms: Predicted failed allocations.
        outlook: Whether the run fits, as far as the recording can show.
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
        command: The command, as it would be typed.
        cwd: Its working directory.
        phantom: The simulated device, or None for a real one.
        variable: The environment variable of the settings.
        conf: The settings to try.
        ranks: One forecast per rank.
    """

    command: str
    cwd: str
    phantom: str | None
    variable: str
    conf: str
    ranks: tuple[RankForecast, ...]


@dataclass(frozen=True)
class RankComparison:
    """Prediction and measurement of one rank, over the calls that both runs share.

    Attributes:
        name: File of the rank.
        num_allocations: Allocations of the common part; ``num_recorded`` of the recorded run, ``num_now`` of the new
            one.
        recorded, predicted, now: Reserved peaks over the common part; ``ooms_*`` are its failed allocations.
        now_whole: Reserved peak of the whole new run.
        calibrated: How exactly a replay of the recorded settings reproduces the recording.
        failed_before, failed_now: The last failed allocation of each run, or None if there is none.
    """

    name: str
    num_allocations: int
    num_recorded: int
    num_now: int
    recorded: int
    predicted: int
    now: int
    ooms_recorded: int
    ooms_predicted: int
    ooms_now: int
    now_whole: int
    ooms_whole: int
    calibrated: str
    failed_before: LastFailure | None = None
    failed_now: LastFailure | None = None

    @property
    def error(self) -> int:
        """Predicted peak - measured peak."""
        return self.predicted - self.now


@dataclass(frozen=True)
class TryReport:
    """A rerun compared with its prediction.

    Attributes:
        variable, conf: The environment variable, and the settings that were tried.
        exit_status: Exit status of the command.
        folder: The folder of the new run, as a path relative to the current directory where possible.
        ranks: One comparison per rank; ranks that left no trace are missing.
        outcomes: One per rank: "runs_to_its_end", "fails_again", "fails_at_the_same_allocation", "fails_earlier" or
            "ends_with_another_error".
    """

    variable: str
    conf: str
    exit_status: int
    folder: str
    ranks: tuple[RankComparison, ...]
    outcomes: tuple[str, ...]

    def as_dict(self) -> Mapping[str, Any]:
        """Returns the report for JSON, in English."""
        from dataclasses import asdict

        from memdiag.text import in_language

        ranks = [
            {**asdict(each), "calibrated": in_language(each.calibrated, "en"), "error": each.error, "outcome": outcome}
            for each, outcome in zip(self.ranks, self.outcomes, strict=True)
        ]
        return {
            "schema_version": 1,
            "variable": self.variable,
            "conf": self.conf,
            "exit_status": self.exit_status,
            "ranks": ranks,
        }
