"""Results of ``memdiag try``: what is predicted of a rerun with other allocator settings, and what the rerun measured."""

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
        requested_bytes: Its request.
        step, phase: Its place in the training; -1 and "": unknown.
        num_allocations: Allocations served before it.
        is_last: Nothing was allocated after it.
    """

    requested_bytes: int
    step: int
    phase: str
    num_allocations: int
    is_last: bool


@dataclass(frozen=True)
class RankForecast:
    """What is predicted of one rank.

    Attributes:
        name: File of its trace.
        peak_bytes: Predicted peak of reserved bytes; ``recorded_bytes`` the recorded one.
        num_ooms: Predicted failed allocations.
        outlook: Whether the run fits, as far as the recording shows that.
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
    """What is predicted of a rerun.

    Attributes:
        command: The command, as it would be typed.
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
    """Prediction and measurement of one rank, over the calls that both runs share.

    Attributes:
        name: File of the rank.
        num_allocations: Of the common part; ``num_recorded`` of the recorded run, ``num_now`` of the new one.
        recorded, predicted, now: Peaks of reserved bytes over the common part; ``ooms_*`` failed allocations in it.
        now_whole: Peak of reserved bytes of the whole new run.
        calibrated: How exactly a replay of the recorded settings reproduces the recording.
        failed_before, failed_now: The last failed allocations; None: none failed.
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
        exit_status: Of the command.
        folder: The folder of the new run, as people would type it here.
        ranks: By rank; those that left no trace are missing.
        outcomes: For each of them: "runs_to_its_end", "fails_again", "fails_at_the_same_allocation", "fails_earlier" or
            "ends_with_another_error".
    """

    variable: str
    conf: str
    exit_status: int
    folder: str
    ranks: tuple[RankComparison, ...]
    outcomes: tuple[str, ...]

    def as_dict(self) -> Mapping[str, Any]:
        """Returns the report as JSON has it, in English."""
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
