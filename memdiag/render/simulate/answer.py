"""The answer of ``memdiag simulate`` in a few sentences: the fate of the run, or the best of several simulated runs."""

from __future__ import annotations

import math

from memdiag.results.outlook import PAST_FAILURE, RECORDED_PART
from memdiag.results.prediction import CalibrationReport, Prediction, PredictionReport
from memdiag.text import Phrase, joined, phrase, plain
from memdiag.units import format_bytes

_LONGEST = 120  # characters of settings


def answer(report: PredictionReport, names: list[str]) -> Phrase:
    """Returns the answer.

    Args:
        report: The simulated runs.
        names: Letters of the runs in the table.
    """
    every = list(zip(names, report.results, strict=True))
    runs = [(name, result) for name, result in every if result.standing != "bound"] or every
    first = min((_rank(result) for _, result in runs), default=None)
    best = [(name, result) for name, result in runs if _rank(result) == first]
    if not best:
        return joined([])
    name, result = best[0]
    parts = [_outcome(report, result), *_smallest(report, result)]
    if result.standing != "uncalibrated":  # the calibration is that of the recorded allocator
        parts.append(_calibration(report.calibration))
    is_itself = all(other.is_recorded and not _card(report, other) for other in report.results)
    if is_itself and not _smallest(report, result):
        parts.append(phrase("simulate.itself"))
    if len(runs) > 1:
        parts.insert(
            0,
            _chosen(name, [each for each, _ in best], len(runs), fits=result.fits is not False and not _breaks(result)),
        )
    if bounds := [each for each, other in every if (each, other) not in runs]:
        parts.append(phrase("simulate.bound", names=", ".join(bounds)))
    if models := [each for each, other in every if other.standing == "uncalibrated"]:
        parts.append(phrase("simulate.model", names=", ".join(models)))
    return joined(parts)


def _breaks(result: Prediction) -> bool:
    return bool(result.num_calls_past_assertion) and not result.num_ooms and result.first_oom is None


def _rank(result: Prediction) -> tuple[int, float, int]:
    """Orders runs, best first: fitting, then the smallest card of a run that does not fit, then reserved bytes."""
    if _breaks(result):
        return 3, 0, result.peak_reserved_bytes
    if result.fits is False:
        # the peak ends at the failure, so a run that fails early has a low one
        smallest = result.min_capacity_bytes
        return 2, math.inf if smallest is None else smallest, result.peak_reserved_bytes
    return 0 if result.fits else 1, 0, result.peak_reserved_bytes


def _chosen(name: str, alike: list[str], count: int, *, fits: bool) -> Phrase:
    if not fits:
        return phrase("simulate.best.none", count=count, name=name)
    if len(alike) > 1:
        return phrase("simulate.best.alike", count=count, names=", ".join(alike))
    return phrase("simulate.best", count=count, name=name)


def _outcome(report: PredictionReport, result: Prediction) -> Phrase:
    where = {"settings": _settings(report, result), "card": _card(report, result)}
    if _breaks(result):
        return phrase("simulate.breaks", **where)
    if result.fits is False:
        first = result.first_oom
        at = (
            phrase("simulate.fails.at", event=first.at_event, bytes=format_bytes(first.requested_bytes))
            if first is not None
            else ""
        )
        return phrase("simulate.fails", **where, where=at)
    peak = {"peak": format_bytes(result.peak_reserved_bytes), "compared": _compared(result)}
    basis = "" if result.outlook is None else result.outlook.basis
    if result.fits is None and basis == PAST_FAILURE:
        return phrase("simulate.past", **where, **peak)
    return phrase(
        "simulate.runs", **where, **peak, what=phrase("simulate.part" if basis == RECORDED_PART else "simulate.run")
    )


def _settings(report: PredictionReport, result: Prediction) -> Phrase | str:
    if result.is_recorded and report.recorded.conf is not None:
        return phrase("simulate.recorded")
    conf = plain(result.conf, _LONGEST)
    if conf and result.standing == "native":  # only the settings differ between these
        return conf
    return (
        phrase("simulate.policy.conf", policy=result.policy, conf=conf)
        if conf
        else phrase("simulate.policy", policy=result.policy)
    )


def _card(report: PredictionReport, result: Prediction) -> Phrase | str:
    """Returns the simulated device, or "" for the recorded one."""
    if result.capacity_bytes is None or result.capacity_bytes == report.capacity_bytes:
        return ""
    return phrase("simulate.card", bytes=format_bytes(result.capacity_bytes))


def _compared(result: Prediction) -> Phrase | str:
    """Returns the peak compared with the recorded settings; differences within the calibration error do not count."""
    if result.saved_bytes is None or result.is_recorded:
        return ""
    before = result.peak_reserved_bytes + result.saved_bytes
    if abs(result.saved_bytes) <= (result.calibration_error_bytes or 0):
        return phrase("simulate.same")
    share = f"{abs(result.saved_bytes) / max(before, 1):.0%}"
    return phrase(
        "simulate.less" if result.saved_bytes > 0 else "simulate.more", before=format_bytes(before), share=share
    )


def _smallest(report: PredictionReport, result: Prediction) -> list[Phrase]:
    if not report.with_min_capacity or result.min_capacity_bytes is None:
        return []
    is_part = result.outlook is not None and result.outlook.failed_at_event >= 0
    return [
        phrase(
            "simulate.smallest.part" if is_part else "simulate.smallest", bytes=format_bytes(result.min_capacity_bytes)
        )
    ]


def _calibration(found: CalibrationReport) -> Phrase:
    if found.num_exact is None or not found.num_events:
        return phrase("simulate.calibration.none")
    if found.is_exact:
        return phrase("simulate.calibration.exact")
    share = share_of(found.exact_fraction or 0.0)
    if found.calibration_error_bytes:
        return phrase("simulate.calibration.error", share=share, bytes=format_bytes(found.calibration_error_bytes))
    return phrase("simulate.calibration.partly", share=share)


def share_of(share: float) -> str:
    """Returns a fraction in words; an incomplete one is never shown as 100 %."""
    return f"{min(share * 100, 99.99):.2f} %" if share > 0.99 else f"{share:.0%}"
