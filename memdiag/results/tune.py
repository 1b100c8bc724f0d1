"""The report of ``memdiag tune``."""

from __future__ import annotations

from dataclasses import dataclass, field

from memdiag.results.finding import SCHEMA_VERSION
from memdiag.results.outlook import PAST_FAILURE, RECORDED_PART, REPLAY, Outlook
from memdiag.results.prediction import CalibrationReport
from memdiag.results.report import CardReport


@dataclass(frozen=True, slots=True)
class Score:
    """What a choice of settings does to all traces.

    Attributes:
        num_failing: Traces in which a request fails; where none fails, a run may still go on past the end of its
            recording.
        num_ooms: Requests that fail, over all traces.
        peaks: Reserved peak of each trace, bytes.
        num_retries, device_allocs, device_frees: Over all traces.
    """

    num_failing: int
    num_ooms: int
    peaks: tuple[int, ...]
    num_retries: int
    device_allocs: int
    device_frees: int

    @property
    def peak(self) -> int:
        """Reserved peak of the trace that needs most."""
        return max(self.peaks, default=0)

    @property
    def num_driver_calls(self) -> int:
        """Ranges obtained and given back."""
        return self.device_allocs + self.device_frees

    @property
    def axes(self) -> tuple[int, ...]:
        """What is to be small."""
        return self.num_failing, self.num_ooms, self.peak, self.num_retries, self.num_driver_calls

    def dominates(self, other: Score) -> bool:
        """Whether it is as good in everything and better in something."""
        return self.axes != other.axes and all(
            mine <= theirs for mine, theirs in zip(self.axes, other.axes, strict=True)
        )

    def fits(self, basis: str) -> tuple[bool | None, str]:
        """Returns whether all runs fit (None: unknown) and on what that rests; ``basis``: of recordings in which no request fails."""
        if self.num_failing:
            return False, REPLAY
        return (None if basis == PAST_FAILURE else True), basis


@dataclass(frozen=True, slots=True)
class Tried:
    """One choice: its settings text (without what is kept), what it does, and what it saves of the recorded peak (None: not known)."""

    conf: str
    score: Score
    saved_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """What one setting of the recommended line is good for: the same line without it."""

    setting: str
    without_peak_bytes: int
    without_retries: int
    without_driver_calls: int
    without_fits: bool


@dataclass(frozen=True, slots=True)
class Recommended:
    """What to set.

    Attributes:
        conf: The settings text, with all that was set and is kept.
        line: To paste into a shell.
        tried: What it does.
        reasons: Why each of its settings is there.
        caveats: What to know before.
        outlooks: Whether each trace's run fits with it, as far as that is known.
    """

    conf: str
    line: str
    tried: Tried
    reasons: tuple[Reason, ...]
    caveats: tuple[str, ...]
    outlooks: tuple[Outlook, ...] = ()


@dataclass(frozen=True, slots=True)
class TunedTrace:
    """One trace: where it is, how exactly the model reproduces it, its recorded peak, and the card that was assumed.

    ``capacity_bytes`` is the whole card, ``room_bytes`` what the allocator can hold of it; None: no limit.
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
    """The whole of it.

    Attributes:
        recorded: What was recorded; the baseline where the traces do not tell.
        baseline: The recorded settings, replayed from an empty cache, as all others are.
        front: What nothing else beats in everything, the smallest peak first.
        recommended: None where nothing is worth setting.
        verdict: Why, in a sentence.
        error_bytes: By how much a peak may be off; None: unknown.
        num_choices: Different settings looked at; num_cut_short: those given up after a part of the trace.
        seconds: How long the search took, calibration not included.
        is_complete: False: the time was over first.
        basis: What "fits" rests on where no recorded request fails, the weakest of all traces
            (``memdiag.trace.reach``).
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
