"""The result of a search for settings, for programs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape, ShapeKey
from memdiag.render.support.shapes import CARD, OUTLOOK, REST
from memdiag.results.outlook import PAST_FAILURE, Outlook
from memdiag.results.prediction import CalibrationReport
from memdiag.results.tune import Reason, Recommended, Score, Tried, TuneReport


@dataclass(frozen=True)
class ScoredSettings:
    """Settings and their effect on all traces.

    Attributes:
        conf: The settings, without those that are kept.
        fits: Whether all runs fit; None: unknown, since a recorded run failed at an allocation that succeeds with these
            settings.
        num_failing_traces: Traces in which a request fails.
        num_ooms: Requests that fail, over all traces.
        peak_reserved_bytes: Highest reserved peak of all traces.
        peak_reserved_bytes_by_trace: Reserved peak of each trace.
        saved_bytes: Bytes saved at the reserved peak, or None if unknown.
        num_retries: Requests for which all cached memory is released first, over all traces.
        num_device_allocs: Segments reserved, over all traces.
        num_device_frees: Segments released, over all traces.
        fits_basis: Basis of ``fits``: "replay", "past_failure", "recorded_part" or "whole_run".
    """

    conf: str
    fits: bool | None
    num_failing_traces: int
    num_ooms: int
    peak_reserved_bytes: int
    peak_reserved_bytes_by_trace: tuple[int, ...]
    saved_bytes: int | None
    num_retries: int
    num_device_allocs: int
    num_device_frees: int
    fits_basis: str

    @staticmethod
    def of(tried: Tried, basis: str) -> ScoredSettings:
        """Returns settings with their effect; ``basis`` as in ``TuneReport``."""
        score = tried.score
        fits, rests_on = score.fits(basis)
        return ScoredSettings(
            tried.conf,
            fits,
            score.num_failing,
            score.num_ooms,
            score.peak,
            score.peaks,
            tried.saved_bytes,
            score.num_retries,
            score.num_device_allocs,
            score.num_device_frees,
            rests_on,
        )


@dataclass(frozen=True)
class WithoutSetting:
    """The result of the recommended settings without one of them.

    Attributes:
        peak_reserved_bytes: Highest reserved peak of all traces.
        num_retries: Requests for which all cached memory is released first.
        num_driver_calls: Segments reserved and released.
        fits: Whether all runs fit, or None if unknown.
    """

    peak_reserved_bytes: int
    num_retries: int
    num_driver_calls: int
    fits: bool | None


@dataclass(frozen=True)
class Contribution:
    """The contribution of one of the recommended settings.

    Attributes:
        setting: The setting.
        without: The result without this setting.
    """

    setting: str
    without: WithoutSetting


@dataclass(frozen=True)
class RecommendedSettings(ScoredSettings):
    """The recommended settings and their effect.

    Attributes:
        conf: The settings, including those that are kept.
        command: The shell line that sets them.
        contributions: The contribution of each setting.
        caveats: What to know before using them.
        outlooks: What is known of runs whose recording ends in a failure, beyond that failure.
    """

    command: str
    contributions: tuple[Contribution, ...]
    caveats: tuple[str, ...]
    outlooks: tuple[Outlook, ...]

    @staticmethod
    def recommended(best: Recommended, basis: str) -> RecommendedSettings:
        """Returns the recommended settings with their effect; ``basis`` as in ``TuneReport``."""
        scored = ScoredSettings.of(best.tried, basis)
        values = {field.name: getattr(scored, field.name) for field in fields(ScoredSettings)}
        values["conf"] = best.conf
        return RecommendedSettings(
            **values,
            command=best.command,
            contributions=tuple(_contribution(reason, basis) for reason in best.reasons),
            caveats=best.caveats,
            outlooks=tuple(outlook for outlook in best.outlooks if outlook.basis == PAST_FAILURE),
        )


def _contribution(reason: Reason, basis: str) -> Contribution:
    fits = None if reason.without_fits and basis == PAST_FAILURE else reason.without_fits
    return Contribution(
        reason.setting,
        WithoutSetting(reason.without_peak_bytes, reason.without_retries, reason.without_driver_calls, fits),
    )


@dataclass(frozen=True)
class Search:
    """Number of settings tried, and duration of the search.

    Attributes:
        num_settings: Number of settings evaluated.
        num_stopped_early: Number of settings abandoned before the end of the trace.
        seconds: Duration of the search, without calibration.
        is_complete: Whether the search ended before the time limit.
    """

    num_settings: int
    num_stopped_early: int
    seconds: float
    is_complete: bool


def _recommended(report: TuneReport) -> RecommendedSettings | None:
    best = report.recommended
    return None if best is None else RecommendedSettings.recommended(best, report.basis)


def _search(report: TuneReport) -> Search:
    return Search(report.num_settings, report.num_stopped_early, round(report.seconds, 3), report.is_complete)


_REPORT = Shape(
    TuneReport,
    (
        "traces",
        "recorded",
        ShapeKey(
            "baseline",
            lambda report: ScoredSettings.of(report.baseline, report.basis),
            ScoredSettings,
            "The recorded settings, replayed from an empty cache like all others.",
        ),
        ShapeKey(
            "recommended",
            _recommended,
            RecommendedSettings | None,
            "The recommended settings; null: no change is worth it.",
        ),
        "verdict",
        "calibration_error_bytes",
        ShapeKey(
            "pareto_front",
            lambda report: [ScoredSettings.of(tried, report.basis) for tried in report.front],
            list[ScoredSettings],
            "Settings of the Pareto front: no other settings are better in every respect. The smallest peak is first.",
        ),
        ShapeKey("search", _search, Search, "Number of settings tried, and duration of the search."),
    ),
)
_SCORE = Shape(
    Score,
    (
        ShapeKey("peak_reserved_bytes", lambda score: score.peak, int, "Highest reserved peak of all traces."),
        ShapeKey("peak_reserved_bytes_by_trace", lambda score: score.peaks, list[int], "Reserved peak of each trace."),
        "num_ooms",
        "num_retries",
        "num_device_allocs",
        "num_device_frees",
    ),
)

LAYOUT = JsonLayout(
    name="tune",
    title="memdiag tune --json",
    meaning="The best allocator settings for one or more traces.",
    version=2,
    root=TuneReport,
    shapes=(
        _REPORT,
        _SCORE,
        Shape(CalibrationReport, ("num_events", "num_exact", "exact_fraction", "calibration_error_bytes")),
        CARD,
        OUTLOOK,
        REST,
    ),
)


def render(report: TuneReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the report as one JSON object, indented, with a newline at its end. ``look`` is not used."""
    return LAYOUT.text(report)


def as_dict(report: TuneReport) -> dict[str, Any]:
    """Returns the report as ``memdiag tune --json`` shows it."""
    return LAYOUT.as_dict(report)
