"""The report of ``memdiag tune``."""

from __future__ import annotations

from dataclasses import dataclass, field

from memdiag.results.finding import SCHEMA_VERSION
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
        num_retries, device_allocs, device_frees: Totals over all traces.
    """

    num_failing: int
    num_ooms: int
    peaks: tuple[int, ...]
    num_retries: int
    device_allocs: int
    device_frees: int

    @property
    def peak(self) -> int:
        """The highest reserved peak of all traces."""
        return max(self.peaks, default=0)

    @property
    def num_driver_calls(self) -> int:
        """Number of segments reserved and released."""
        return self.device_allocs + self.device_frees

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
    """One choice: its settings (without those that are kept), its effect, and the bytes saved (None if unknown)."""

    conf: str
    score: Score
    saved_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """Contribution of one setting of the recommended line: the result of the same line without it."""

    setting: str
    without_peak_bytes: int
    without_retries: int
    without_driver_calls: int
    without_fits: bool


@dataclass(frozen=True, slots=True)
class Recommended:
    """The recommended settings.

    Attributes:
        conf: The settings string, including settings that are kept.
        line: Shell line to paste.
        tried: Their effect.
        reasons: Why each setting is included.
        caveats: What to know before.
        outlooks: For each trace, whether its run fits with these settings, as far as known.
    """

    conf: str
    line: str
    tried: Tried
    reasons: tuple[Reason, ...]
    caveats: tuple[str, ...]
    outlooks: tuple[Outlook, ...] = ()


@dataclass(frozen=True, slots=True)
class TunedTrace:
    """One trace: its path, how exactly the model reproduces it, its recorded peak, and the assumed capacity.

    ``capacity_bytes`` is the whole device, ``room_bytes`` the part that the allocator can reserve; None for no limit.
    """

    path: str
    device: int
    torch_version: str
    calibration: CalibrationReport
    recorded_conf: str
    recorded_peak_bytes: int | None
    capacity_bytes: int | None
    num_calls: int
    room_bytes: int | None = None
    card: CardReport = field(default_factory=CardReport)


@dataclass(frozen=True, slots=True)
class TuneReport:
    """The report of ``memdiag tune``.

    Attributes:
        recorded: The recorded result, or the baseline if the traces do not record it.
        baseline: The recorded settings, replayed from an empty cache like all others.
        front: The Pareto front, smallest peak first.
        recommended: None if no settings are worth changing.
        verdict: The reason, in one sentence.
        error_bytes: Error of a peak, or None if unknown.
        num_choices: Number of settings evaluated; num_cut_short: those abandoned before the end of the trace.
        seconds: How long the search took, calibration not included.
        is_complete: False if the time limit ended the search.
        basis: Basis of "fits" where no recorded request fails, the weakest of all traces (``memdiag.trace.reach``).
    """

    traces: tuple[TunedTrace, ...]
    recorded: Score
    baseline: Tried
    front: tuple[Tried, ...]
    recommended: Recommended | None
    verdict: str
    error_bytes: int | None
    num_choices: int
    num_cut_short: int
    seconds: float
    is_complete: bool
    phantom: bool = False
    basis: str = RECORDED_PART
    schema_version: int = field(default=SCHEMA_VERSION)
