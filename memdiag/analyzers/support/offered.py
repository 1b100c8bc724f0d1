"""Remedies, savings and severity of findings, from the replays of settings.

``diagnosis.refuted`` decides which settings are remedies. A warning without any remaining remedy becomes information.
A smaller batch is offered only if no setting gets past a failure. If no warning offers the best setting, MD208 does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from memdiag.diagnosis.refuted import best_of, is_relevant, is_solution, setting_words, trifle
from memdiag.diagnosis.remedies.demand import LAST_RESORTS
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.results.report import WhatIf
from memdiag.text import Phrase, phrase
from memdiag.units import MIB, format_bytes

CODES = {"MD208": "another allocator setting needs less memory"}

_FLOOR = 32 * MIB  # below it, a saving is worth knowing, but not a warning
_LARGE_SHARE = 0.1  # of the peak: a smaller saving is a warning only if the device is nearly full
_JUDGED_ELSEWHERE = ("MD114",)  # its own replays decide
_NOT_ABOUT_BYTES = "MD6"  # findings about settings: removing a line without effect is still useful


def offered(
    findings: Iterable[Finding],
    results: Sequence[WhatIf],
    proposals: Mapping[str, Fix],
    nearly_full: Collection[int] = (),
) -> list[Finding]:
    """Returns the findings with remedies, savings and severities according to replays, and MD208 if needed.

    Args:
        findings: Findings of all devices.
        results: Replays of all devices, judged.
        proposals: Fixes for settings lines that no finding suggests, by line.
        nearly_full: Devices whose reserved memory almost reached their capacity.
    """
    found = [_judged(finding, results) for finding in findings]
    for device in dict.fromkeys(result.device for result in results):
        best = best_of(result for result in results if result.device == device)
        if best is not None and (is_relevant(best) or is_solution(best)) and not _is_offered(best, found):
            found.append(_better_setting(best, proposals.get(best.change), is_nearly_full=device in nearly_full))
    return found


def _judged(finding: Finding, results: Sequence[WhatIf]) -> Finding:
    """Returns a finding without refuted remedies, with the saving of the best remaining one."""
    if finding.code in _JUDGED_ELSEWHERE:
        return finding
    mine = [
        result
        for result in results
        if not result.is_combination and finding.code in result.codes and finding.device in {None, result.device}
    ]
    helping = {result.change for result in mine if not _is_refuted(finding, result)}  # on one device at least
    refuted = {result.change: result.rejection_reason for result in mine if result.change not in helping}
    is_solved = any(map(is_solution, mine))
    kept = sorted(
        (fix for fix in finding.fixes if fix.change not in refuted and not (is_solved and _is_last_resort(fix))),
        key=lambda fix: (
            -max((result.saved_bytes for result in mine if result.change == fix.change), default=0)
            if fix.change in helping
            else 0
        ),
    )
    said = tuple(
        Evidence(phrase("offered.tried", setting=fix.change.partition("=")[2] or fix.change), refuted[fix.change])
        for fix in finding.fixes
        if fix.change in refuted
    )
    finding = replace(finding, fixes=tuple(kept), evidence=(*finding.evidence, *said))
    best = best_of(
        result for result in mine if result.saved_bytes > trifle(result.baseline_bytes, result.calibration_error_bytes)
    )
    if best is None:
        return replace(finding, severity="info") if said and not kept and finding.severity == "warning" else finding
    low, high = best.saved_bytes - best.calibration_error_bytes, best.saved_bytes + best.calibration_error_bytes
    return replace(finding, saving=Saving(low, best.saved_bytes, high, "simulated", best.repro))


def _is_refuted(finding: Finding, result: WhatIf) -> bool:
    if finding.code.startswith(_NOT_ABOUT_BYTES) and not result.num_ooms:
        return result.saved_bytes < -trifle(result.baseline_bytes, result.calibration_error_bytes)
    return bool(result.rejection_reason)


def _is_last_resort(fix: Fix) -> bool:
    return isinstance(fix.title, Phrase) and fix.title.key in LAST_RESORTS


def _is_warning(result: WhatIf, *, is_nearly_full: bool) -> bool:
    if is_solution(result):
        return True
    is_worth_it = is_nearly_full or result.saved_bytes >= _LARGE_SHARE * result.baseline_bytes
    return is_worth_it and is_relevant(result) and result.saved_bytes >= _FLOOR


def _is_offered(best: WhatIf, findings: Iterable[Finding]) -> bool:
    """Returns True if a warning or critical finding offers this line."""
    return any(
        fix.change == best.change
        for finding in findings
        if finding.severity != "info" and finding.device in {None, best.device}
        for fix in finding.fixes
    )


def _better_setting(best: WhatIf, fix: Fix | None, *, is_nearly_full: bool) -> Finding:
    """Returns MD208."""
    share = best.saved_bytes / max(best.baseline_bytes, 1)
    title = phrase("offered.title", bytes=format_bytes(best.saved_bytes), share=f"{share:.0%}")
    if is_solution(best):
        title = phrase("offered.title.past")
    low, high = best.saved_bytes - best.calibration_error_bytes, best.saved_bytes + best.calibration_error_bytes
    return Finding(
        "MD208",
        title,
        "warning" if _is_warning(best, is_nearly_full=is_nearly_full) else "info",
        best.device,
        tuple(_facts(best)),
        (fix or Fix(phrase("offered.fix"), "env", best.change),),
        Saving(low, best.saved_bytes, high, "simulated", best.repro) if best.saved_bytes > 0 else None,
        weight_bytes=max(best.saved_bytes, 0),
    )


def _facts(best: WhatIf) -> Iterator[Evidence]:
    yield Evidence(phrase("offered.recorded"), best.baseline_bytes, "bytes")
    yield Evidence(phrase("offered.replayed", setting=setting_words(best)), best.peak_reserved_bytes, "bytes")
    yield Evidence(phrase("offered.calls"), best.num_driver_calls, "calls")
    yield Evidence(phrase("offered.calibration"), best.calibration)
    if best.starts_with_live_tensors:
        yield Evidence(phrase("offered.late"), phrase("offered.late.value"))
