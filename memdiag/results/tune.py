"""The report of ``memdiag tune``."""

from __future__ import annotations

from dataclasses import dataclass, field

from memdiag.results.outlook import PAST_FAILURE, RECORDED_PART, REPLAY, Outlook
from memdiag.results.prediction import CalibrationReport
from memdiag.results.report import CardReport


@dataclass(frozen=True, slots=True)
class Score:
    """Effect of a choice of settings on all traces.

    Attributes:
        num_failing: Traces in which a request fails; even if there are none, a run may continue past the end of its
            recording.
        num_ooms: Failing requests, over all traces.
        peaks: Reserved peak of each trace, bytes.
        num_retries: Requests for which all cached memory is released first, over all traces.
        num_device_allocs: Segments reserved, over all traces.
        num_device_frees: Segments released, over all traces.
    """

    num_failing: int
    num_ooms: int
    peaks: tuple[int, ...]
    num_retries: int
    num_device_allocs: int
    num_device_frees: int

    @property
    def peak(self) -> int:
        """The highest reserved peak of all traces."""
        return max(self.peaks, default=0)

    @property
    def num_driver_calls(self) -> int:
        """Number of segments reserved and released."""
        return self.num_device_allocs + self.num_device_frees

    @property
    def axes(self) -> tuple[int, ...]:
        """The values to minimise."""
        return self.num_failing, self.num_ooms, self.peak, self.num_retries, self.num_driver_calls

    def dominates(self, other: Score) -> bool:
        """Returns whether this score is at least as good in every value and better in one."""
        return self.axes != other.axes and all(
            mine <= theirs for mine, theirs in zip(self.axes, other.axes, strict=True)
        )

    def fits(self, basis: str) -> tuple[bool | None, str]:
        """Returns whether all runs fit (None if unknown), and the basis of that answer.

        Args:
            basis: Basis of the answer for recordings in which no request fails.
        """
        if self.num_failing:
            return False, REPLAY
        return (None if basis == PAST_FAILURE else True), basis


@dataclass(frozen=True, slots=True)
class Tried:
    """One choice of settings.

    Attributes:
        conf: The settings, without those that are kept.
        score: Their effect.
        saved_bytes: Bytes saved at the reserved peak, or None if unknown.
    """

    conf: str
    score: Score
    saved_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """Contribution of one setting of the recommendation: the result without it.

    Attributes:
        setting: The setting.
        without_peak_bytes: Reserved peak without it.
        without_retries: Retries without it.
        without_driver_calls: Driver calls without it.
        without_fits: Whether no request fails without it.
    """

    setting: str
    without_peak_bytes: int
    without_retries: int
    without_driver_calls: int
    without_fits: bool


@dataclass(frozen=True, slots=True)
class Recommended:
    """The recommended settings.

    Attributes:
        conf: The settings, including those that are kept.
        command: The shell line that sets them.
        tried: Their effect.
        reasons: Why each setting is included.
        caveats: Possible costs and conditions.
        outlooks: For each trace, whether its run fits with these settings, if known.
    """

    conf: str
    command: str
    tried: Tried
    reasons: tuple[Reason, ...]
    caveats: tuple[str, ...]
    outlooks: tuple[Outlook, ...] = ()


@dataclass(frozen=True, slots=True)
class TunedTrace:
    """One trace.

    Attributes:
        path: The file.
        device: Index of the device.
        torch_version: Version of PyTorch whose rules were applied.
        calibration: How exactly a replay of the recorded settings reproduces the recording.
        recorded_conf: The recorded settings.
        recorded_peak_reserved_bytes: Recorded reserved peak, or None if unknown.
        capacity_bytes: Memory of the card, or None for no limit.
        num_requests: Requests of the program to the allocator (allocations and frees).
        usable_bytes: Bytes of the card that the allocator can use, or None for no limit.
        card: The card and the memory outside the allocator.
    """

    path: str
    device: int
    torch_version: str
    calibration: CalibrationReport
    recorded_conf: str
    recorded_peak_reserved_bytes: int | None
    capacity_bytes: int | None
    num_requests: int
    usable_bytes: int | None = None
    card: CardReport = field(default_factory=CardReport)


@dataclass(frozen=True, slots=True)
class TuneReport:
    """The report of ``memdiag tune``.

    Attributes:
        traces: The traces.
        recorded: The recorded result, or the baseline if the traces do not record it.
        baseline: The recorded settings, replayed from an empty cache like all others.
        front: The Pareto front and the recommended settings, smallest peak first.
        recommended: The recommended settings, or None if no change is worth it.
        verdict: The reason for the recommendation, in one sentence.
        calibration_error_bytes: Calibration error of a predicted peak, or None if unknown.
        num_settings: Number of settings evaluated.
        num_stopped_early: Number of settings abandoned before the end of the trace.
        seconds: Duration of the search, without calibration.
        is_complete: Whether the search ended before the time limit.
        basis: Basis of "fits" if no recorded request fails, the weakest of all traces (``memdiag.trace.reach``).
    """

    traces: tuple[TunedTrace, ...]
    recorded: Score
    baseline: Tried
    front: tuple[Tried, ...]
    recommended: Recommended | None
    verdict: str
    calibration_error_bytes: int | None
    num_settings: int
    num_stopped_early: int
    seconds: float
    is_complete: bool
    is_phantom: bool = False
    basis: str = RECORDED_PART

    @property
    def preferred_to(self) -> int | None:
        """Index in ``front`` of settings that beat the recommended ones with a longer line, or None."""
        if self.recommended is None:
            return None
        best = self.recommended.tried.score
        return next((index for index, tried in enumerate(self.front) if tried.score.dominates(best)), None)
