"""Choice of the settings to offer, and severity of findings, from the replays of these settings.

A setting that a replay shows to be useless, worse, or dominated by another is not offered. A warning without any
remaining remedy becomes information. If no warning offers the best setting, MD208 does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.results.report import WhatIf
from memdiag.text import phrase
from memdiag.units import MIB, format_bytes

CODES = {"MD208": "another allocator setting needs less memory"}

RELEVANT_SHARE = 0.02  # fraction of the reserved peak: a saving worth acting on
RELEVANT_FLOOR = 32 * MIB  # below it, a saving is worth knowing, but not a warning
# A page of the device, and a fraction of the peak: smaller savings count as none.
_TRIFLE, _TRIFLE_SHARE = 2 * MIB, 0.002
_JUDGED_ELSEWHERE = ("MD114",)  # its own replays decide
_NOT_ABOUT_BYTES = "MD6"  # findings about settings: removing a line without effect is still useful


def trifle(baseline_bytes: int, error_bytes: int) -> int:
    """Returns the bytes up to which a saving counts as none."""
    return max(error_bytes, _TRIFLE, int(_TRIFLE_SHARE * baseline_bytes))


def is_relevant(result: WhatIf) -> bool:
    """Returns True if the saving is a relevant share of the peak, even after subtracting the calibration error."""
    return result.saved_bytes - result.calibration_error_bytes >= max(RELEVANT_SHARE * result.baseline_bytes, _TRIFLE)


def is_solution(result: WhatIf) -> bool:
    """Returns True if every allocation that failed in the recording succeeds in the replay."""
    return bool(result.num_recorded_ooms) and not result.num_ooms


def judged_results(results: Sequence[WhatIf]) -> list[WhatIf]:
    """Returns the replays of one device, each with the reason why it is not a remedy, or ""."""
    own = [replace(result, rejection_reason=_useless(result)) for result in results]
    good = [result for result in own if result.is_offered and not result.is_combination]
    judged = []
    for result in own:
        better = next((other for other in good if _dominates(other, result)), None)
        reason = result.rejection_reason
        if better is not None and not reason:
            reason = phrase("offered.dominated", setting=setting_words(better))
        judged.append(replace(result, rejection_reason=reason))
    return judged


def _useless(result: WhatIf) -> str:
    """Returns why a setting is not a remedy here, or "" if it may be one."""
    if result.num_ooms:
        return phrase("offered.fails.still") if result.num_recorded_ooms else phrase("offered.fails")
    if result.num_recorded_ooms:
        return ""
    nothing = trifle(result.baseline_bytes, result.calibration_error_bytes)
    if result.saved_bytes < -nothing:
        return phrase("offered.more", bytes=format_bytes(-result.saved_bytes))
    return phrase("offered.nothing") if result.saved_bytes <= nothing else ""


def _dominates(one: WhatIf, other: WhatIf) -> bool:
    """Returns whether ``one`` is at least as good in every value and better in one.

    Among equal ones, the first is retained.
    """
    mine, others = (
        (each.num_ooms, each.peak_reserved_bytes, each.num_retries, each.num_driver_calls) for each in (one, other)
    )
    return mine != others and all(a <= b for a, b in zip(mine, others, strict=True))


def setting_words(result: WhatIf) -> str:
    """Returns the settings of a replay for display: ``expandable_segments:True``, or a text for no settings."""
    return result.conf or phrase("offered.none")


def best_of(results: Iterable[WhatIf]) -> WhatIf | None:
    """Returns the replay to recommend: the smallest peak; among equals within a trifle, the first in the list."""
    offers = [result for result in results if result.is_offered]
    least = min((result.peak_reserved_bytes for result in offers), default=0)
    for result in sorted(offers, key=lambda each: each.is_combination):
        if result.peak_reserved_bytes <= least + trifle(result.baseline_bytes, result.calibration_error_bytes):
            return result
    return None


def offered(findings: Iterable[Finding], results: Sequence[WhatIf], proposals: Mapping[str, Fix]) -> list[Finding]:
    """Returns the findings with remedies, savings and severities according to replays, and MD208 if needed.

    Args:
        findings: Findings of all devices.
        results: Replays of all devices, judged.
        proposals: Fixes for settings lines that no finding suggests, by line.
    """
    found = [_judged(finding, results) for finding in findings]
    for device in dict.fromkeys(result.device for result in results):
        best = best_of(result for result in results if result.device == device)
        if best is not None and (is_relevant(best) or is_solution(best)) and not _is_offered(best, found):
            found.append(_better_setting(best, proposals.get(best.change)))
    return found


def without_refuted(findings: Iterable[Finding], results: Sequence[WhatIf]) -> tuple[Finding, ...]:
    """Returns findings from elsewhere (an out-of-memory message) without the remedies that replays refute.

    The same setting with another number is the same remedy: it is refuted if no replayed number helps.
    """
    single = [result for result in results if not result.is_combination]
    helping = {_without_numbers(result.conf) for result in single if result.is_offered}
    refuted = {_without_numbers(result.conf) for result in single} - helping
    return tuple(
        replace(
            finding,
            fixes=tuple(
                fix for fix in finding.fixes if fix.kind != "env" or _without_numbers(_conf_of(fix)) not in refuted
            ),
        )
        for finding in findings
    )


def _conf_of(fix: Fix) -> str:
    variable, _, conf = fix.change.partition("=")
    return conf.strip("'\"") if variable.endswith("ALLOC_CONF") else fix.change


def _without_numbers(conf: str) -> str:
    return re.sub(r"[0-9]+", "", conf)


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
    kept = sorted(
        (fix for fix in finding.fixes if fix.change not in refuted),
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


def _is_warning(result: WhatIf) -> bool:
    return is_relevant(result) and result.saved_bytes >= RELEVANT_FLOOR


def _is_offered(best: WhatIf, findings: Iterable[Finding]) -> bool:
    """Returns True if a warning or critical finding offers this line."""
    return any(
        fix.change == best.change
        for finding in findings
        if finding.severity != "info" and finding.device in {None, best.device}
        for fix in finding.fixes
    )


def _better_setting(best: WhatIf, fix: Fix | None) -> Finding:
    """Returns MD208."""
    share = best.saved_bytes / max(best.baseline_bytes, 1)
    title = phrase("offered.title", bytes=format_bytes(best.saved_bytes), share=f"{share:.0%}")
    if is_solution(best):
        title = phrase("offered.title.past")
    low, high = best.saved_bytes - best.calibration_error_bytes, best.saved_bytes + best.calibration_error_bytes
    return Finding(
        "MD208",
        title,
        "warning" if is_solution(best) or _is_warning(best) else "info",
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
