"""Which settings are remedies here, according to their replays.

A setting that a replay shows to be useless, worse, or dominated by another is refuted and not offered, on any surface.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from memdiag.results.finding import Finding, Fix
from memdiag.results.report import Verdict, WhatIf
from memdiag.text import phrase
from memdiag.units import MIB, format_bytes

RELEVANT_SHARE = 0.02  # fraction of the reserved peak: a saving worth acting on
# A page of the device, and a fraction of the peak: smaller savings count as none.
_TRIFLE, _TRIFLE_SHARE = 2 * MIB, 0.002


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
        return phrase("offered.rest") if result.is_rest_too_large else ""
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


def best_of(results: Iterable[WhatIf]) -> WhatIf | None:
    """Returns the replay to recommend: the smallest peak; among equals within a trifle, the first in the list."""
    offers = [result for result in results if result.is_offered]
    least = min((result.peak_reserved_bytes for result in offers), default=0)
    for result in sorted(offers, key=lambda each: each.is_combination):
        if result.peak_reserved_bytes <= least + trifle(result.baseline_bytes, result.calibration_error_bytes):
            return result
    return None


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


def as_on_card(findings: tuple[Finding, ...], card: Verdict | None) -> tuple[Finding, ...]:
    """Returns findings that begin with the remedy of the report's card, if they contain it.

    Otherwise the report on a failure and the report on its trace would advise different things first.
    """
    if card is None or not card.code:
        return findings

    def differs(fix: Fix) -> bool:
        return fix.change != card.command if card.command else fix.title != card.remedy

    ordered = [replace(each, fixes=tuple(sorted(each.fixes, key=differs))) for each in findings]
    return tuple(sorted(ordered, key=lambda each: not each.fixes or differs(each.fixes[0])))


def _conf_of(fix: Fix) -> str:
    variable, _, conf = fix.change.partition("=")
    return conf.strip("'\"") if variable.endswith("ALLOC_CONF") else fix.change


def _without_numbers(conf: str) -> str:
    return re.sub(r"[0-9]+", "", conf)


def trifle(baseline_bytes: int, error_bytes: int) -> int:
    """Returns the bytes up to which a saving counts as none."""
    return max(error_bytes, _TRIFLE, int(_TRIFLE_SHARE * baseline_bytes))


def is_relevant(result: WhatIf) -> bool:
    """Returns True if the saving is a relevant share of the peak, even after subtracting the calibration error."""
    return result.saved_bytes - result.calibration_error_bytes >= max(RELEVANT_SHARE * result.baseline_bytes, _TRIFLE)


def is_solution(result: WhatIf) -> bool:
    """Returns True if every allocation that failed in the recording succeeds in the replay, and the rest may fit."""
    return bool(result.num_recorded_ooms) and not result.num_ooms and not result.is_rest_too_large


def is_stuck(results: Iterable[WhatIf]) -> bool:
    """Returns whether an allocation failed in the recording, and some allocation fails in each replay."""
    results = tuple(results)
    return any(each.num_recorded_ooms for each in results) and not any(map(is_solution, results))


def setting_words(result: WhatIf) -> str:
    """Returns the settings of a replay for display: ``expandable_segments:True``, or a text for no settings."""
    return result.conf or phrase("offered.none")
