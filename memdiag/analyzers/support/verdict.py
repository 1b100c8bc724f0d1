"""The verdict card: headline, loss, first remedy with its command, prediction, and calibration.

It is computed once for a report. Its texts are in ``messages/verdict.json``.
"""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.analyzers.support.experts import experts_without_load
from memdiag.analyzers.support.root_causes import AVOIDABLE, RETAINED
from memdiag.diagnosis.refuted import RELEVANT_SHARE, best_of, is_relevant, is_solution, is_stuck
from memdiag.results.finding import SEVERITIES, Finding, Fix, Severity
from memdiag.results.report import DeviceReport, Verdict, WhatIf
from memdiag.text import Phrase, joined, phrase
from memdiag.trace.model import Trace
from memdiag.trace.moments import has_requests
from memdiag.trace.reach import reach_of
from memdiag.units import format_bytes

_REPLAYED = ("cuda", "npu")
_NEEDLESS = (*AVOIDABLE, RETAINED)  # more important than any setting
_GROWTH = "MD301"
_COMPOSITION = ("MD101", "MD102", "MD134")
_FAR_MORE = 4  # times the saving of a setting: estimates of savings are uncertain


def verdict(
    trace: Trace,
    devices: Sequence[DeviceReport],
    findings: Sequence[Finding],
    what_if: Sequence[WhatIf],
    happened: str,
    *,
    replay: bool,
) -> Verdict:
    """Returns the card of a report.

    Args:
        trace: The trace.
        devices: Reports on each device.
        findings: Findings, worst first.
        what_if: Replays of settings.
        happened: The headline.
        replay: Whether settings were replayed at all.
    """
    severity: Severity | None = next(
        (s for s in SEVERITIES if s != "info" and any(f.severity == s for f in findings)), None
    )
    device = max(devices, key=_badness, default=None)
    if device is None:
        return Verdict(severity or "ok", happened, remedy=phrase("verdict.first.none"))
    own = next((each for each in trace.devices if each.device == device.device), None)
    mine = [finding for finding in findings if finding.device in {None, device.device}]
    results = [result for result in what_if if result.device == device.device]
    is_worse = severity == "critical" or any(_is_root(finding) for finding in mine if finding.severity != "info")
    error = "" if is_worse else _error(trace)
    chosen, result = (None, None) if error else _first(mine, results)
    remedy = chosen[1].title if chosen else phrase("verdict.first.none")
    is_empty = not (own and own.num_events) and not max(_badness(device))
    if error:
        remedy = phrase("verdict.first.failed.values" if _is_made_up(trace) else "verdict.first.failed", error=error)
    elif severity is None:
        chosen = chosen or _for_a_lower_peak(mine)
        otherwise = phrase("verdict.first.record" if is_empty else "verdict.first.nothing")
        remedy = phrase("verdict.first.optional", fix=chosen[1].title) if chosen else otherwise
    loss = device.fragmentation.lost_bytes
    fits, basis = (
        (None, None) if result is None or own is None else reach_of(trace, own).fits(fails=bool(result.num_ooms))
    )
    return Verdict(
        severity or "ok",
        happened,
        device.device,
        lost_bytes=loss,
        loss=phrase("verdict.lost.empty") if is_empty else _loss_words(device, loss),
        remedy=remedy,
        command=chosen[1].change if chosen else "",
        code=chosen[0].code if chosen else "",
        peak_reserved_bytes=result.baseline_bytes if result else None,
        predicted_peak_reserved_bytes=result.peak_reserved_bytes if result else None,
        fits=fits,
        prediction=phrase("verdict.predicted.failed")
        if error
        else _prediction(chosen[0] if chosen else None, result, results, replay=replay),
        calibration=_calibration(trace, device.device, results, replay=replay),
        fits_basis=basis,
        assumed=_assumed(trace),
    )


def _badness(device: DeviceReport) -> tuple[bool, int, int]:
    """Returns the sort key of devices for the headline: out of memory first, then the most reserved bytes."""
    reserved = device.peak.reserved_bytes or device.end.reserved_bytes or 0
    return (
        bool(device.counts.get("num_ooms")),
        reserved,
        device.peak_allocated.allocated_bytes or device.end.allocated_bytes or 0,
    )


_Chosen = tuple[Finding, Fix]


def _first(findings: Sequence[Finding], results: Sequence[WhatIf]) -> tuple[_Chosen | None, WhatIf | None]:
    """Returns the first remedy with its finding, and its replay, if there is one.

    Growing or avoidable memory comes first, then a setting that a replay confirms, then the worst finding's first fix.
    If no setting solves a failure, a fix that saves far more than the best setting comes before it, and one for
    avoidable memory if it saves more. A finding whose settings save hardly anything comes nowhere: the card states that
    no setting saves a relevant share.
    """
    offers = [(finding, fix) for finding in findings if finding.severity != "info" for fix in finding.fixes]
    needless = next((offer for offer in offers if _is_root(offer[0])), None)
    best = best_of(results)
    if needless is None and best is not None and (is_solution(best) or is_relevant(best)):
        every = [(finding, fix) for finding in findings for fix in finding.fixes]
        larger = next((offer for offer in offers if _saves_far_more(offer[0], best)), None)
        if larger is not None and not is_solution(best):
            return larger, None
        return next((offer for offer in every if offer[1].change == best.change), None), best
    chosen = needless or next((offer for offer in offers if not _is_trifle(offer[0], results)), None)
    return chosen, None


def _is_trifle(finding: Finding, results: Sequence[WhatIf]) -> bool:
    """Returns whether replays show that the settings of a finding save no relevant share of the reserved peak."""
    saving = finding.saving
    if saving is None or saving.basis != "simulated" or not results or results[0].num_recorded_ooms:
        return False
    return saving.expected_bytes < RELEVANT_SHARE * results[0].baseline_bytes


def _saves_far_more(finding: Finding, best: WhatIf) -> bool:
    saving, far_more = finding.saving, 1 if finding.code in _NEEDLESS else _FAR_MORE
    return (
        saving is not None
        and saving.basis != "simulated"
        and not (finding.severity == "info" and finding.code in _COMPOSITION)
        and saving.expected_bytes > far_more * max(best.saved_bytes, 0)
    )


def _error(trace: Trace) -> str:
    """Returns the class of the exception that ended the program, or ""."""
    ended = trace.recorded.ended if trace.recorded else None
    if ended is None or ended.reason != "exit" or ended.error == KeyboardInterrupt.__name__:
        return ""
    return ended.error


def _is_made_up(trace: Trace) -> bool:
    """Returns whether values that a simulated device did not compute may have caused the error of the program."""
    ended = trace.recorded.ended if trace.recorded else None
    return ended is not None and ended.num_reads > 0 and not ended.error_is_of_code


def _for_a_lower_peak(findings: Sequence[Finding]) -> _Chosen | None:
    """Returns the first remedy for the largest part of the peak, for a run without problems."""
    return next(((each, each.fixes[0]) for each in findings if each.code in _COMPOSITION and each.fixes), None)


def _is_root(finding: Finding) -> bool:
    return finding.code == _GROWTH or (finding.severity == "critical" and finding.code in _NEEDLESS)


def _loss_words(device: DeviceReport, loss: int | None) -> Phrase:
    if loss is None:
        return phrase("verdict.lost.unknown")
    if not loss:
        return phrase("verdict.lost.none")
    moment = device.moment or device.peak
    reserved = moment.reserved_bytes or device.end.reserved_bytes or 0
    return phrase("verdict.lost", bytes=format_bytes(loss), share=f"{loss / max(reserved, loss):.1%}")


def _prediction(finding: Finding | None, result: WhatIf | None, results: Sequence[WhatIf], *, replay: bool) -> Phrase:
    if result is not None:
        values = {"peak": format_bytes(result.peak_reserved_bytes), "before": format_bytes(result.baseline_bytes)}
        if is_solution(result):
            return phrase("verdict.predicted.past", **values)
        share = f"{result.saved_bytes / max(result.baseline_bytes, 1):.0%}"
        return phrase("verdict.predicted.saves", **values, share=share)
    if finding is not None and finding.saving is not None and finding.saving.basis != "simulated":
        saving, basis = finding.saving, phrase(f"verdict.basis.{finding.saving.basis}")
        is_least = saving.low_bytes == saving.expected_bytes < saving.high_bytes
        amount = format_bytes(saving.expected_bytes)
        if is_least:
            return phrase("verdict.predicted.least", saving=amount, basis=basis)
        return phrase("verdict.predicted.code", saving=amount, basis=basis)
    if any(result.is_rest_too_large for result in results):
        return phrase("verdict.predicted.rest")
    if results:
        return phrase("verdict.predicted.stuck" if is_stuck(results) else "verdict.predicted.none", count=len(results))
    return phrase("verdict.predicted.unknown" if replay else "verdict.predicted.skipped")


def _assumed(trace: Trace) -> Phrase | str:
    """Returns what the peak of a simulated device depends on, in words."""
    experts = experts_without_load(trace)
    said = [phrase("verdict.assumed.experts", module=experts) if experts else "", _assumed_sizes(trace)]
    return joined([each for each in said if each], ". ")


def _assumed_sizes(trace: Trace) -> Phrase | str:
    ended = trace.recorded.ended if trace.recorded else None
    if ended is None or (sizes := ended.sizes) is None:
        return ""
    place = phrase("verdict.assumed.place", place=sizes.place) if sizes.place else ""
    if sizes.fraction == 1:
        unless = phrase("verdict.assumed.unless", count=ended.num_reads) if ended.num_reads else ""
        return phrase("verdict.assumed.all", count=sizes.count, place=place, unless=unless)
    return phrase("verdict.assumed.fraction", count=sizes.count, place=place, fraction=f"{sizes.fraction:g}")


def _calibration(trace: Trace, device: int, results: Sequence[WhatIf], *, replay: bool) -> Phrase:
    """Returns the calibration in words, or the reason for a missing prediction."""
    if results:
        one = results[0]
        said = phrase("verdict.calibration", exact=one.calibration)
        if one.calibration_error_bytes:
            said = phrase(
                "verdict.calibration.error", exact=one.calibration, bytes=format_bytes(one.calibration_error_bytes)
            )
        return phrase("verdict.calibration.late", calibration=said) if one.starts_with_live_tensors else said
    if not replay:
        return phrase("verdict.calibration.skipped")
    if trace.backend not in _REPLAYED:
        return phrase("verdict.calibration.backend", backend=trace.backend or phrase("verdict.unknown-backend"))
    own = next(each for each in trace.devices if each.device == device)
    if not has_requests(own):
        return phrase("verdict.calibration.no-history")
    return phrase("verdict.calibration.inexact" if own.has_addresses else "verdict.calibration.no-addresses")
