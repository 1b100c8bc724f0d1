"""Failures that only live tensors explain: they fill the device."""

from __future__ import annotations

from memdiag.diagnosis import thresholds
from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.outside import is_ones_own
from memdiag.results.oom import Cause, Confidence, Judgement
from memdiag.text import phrase
from memdiag.units import format_bytes


def full(facts: Facts) -> Judgement:
    """Judges a failure that only live tensors explain."""
    part, requested = facts.share(facts.live), facts.needed
    sizes = {"live": format_bytes(facts.live), "total": format_bytes(facts.total), "share": f"{part:.0%}"}
    reasons = [phrase("cause.full", size=format_bytes(requested), free=format_bytes(facts.free), **sizes)]
    alternatives: list[Cause] = []
    if facts.slack is not None:
        reasons.append(
            phrase("cause.full.slack", slack=format_bytes(facts.slack), share=f"{facts.share(facts.slack):.1%}")
        )
        if max(facts.slack, facts.usable) + facts.pending >= requested:
            alternatives.append("fragmentation")
    foreign = facts.foreign_excess if facts.is_counted else facts.foreign or 0
    if foreign >= max(requested - (facts.free or 0), 1) and (facts.process is None or facts.others):
        alternatives.append("workspace_or_comm" if is_ones_own(facts) else "other_process")
        reasons.append(phrase("cause.full.outside", outside=format_bytes(facts.outside)))
    if "workspace_or_comm" not in alternatives and (facts.own_outside or 0) > 2 * facts.allowance:
        alternatives.append("workspace_or_comm")
        reasons.append(phrase("cause.full.libraries", outside=format_bytes(facts.own_outside)))
    if "workspace_or_comm" not in alternatives and facts.private >= thresholds.HALF * (facts.reserved or 0) > 0:
        alternatives.append("workspace_or_comm")
    if facts.limit is not None:
        alternatives.append("limit")
    if facts.is_counted and facts.total is None and facts.missing > 0:
        alternatives.append("other_process")
    is_full = part >= thresholds.NEARLY_FULL or (facts.is_counted and facts.free is not None)
    sure: Confidence = (
        "high" if is_full and not alternatives else "medium" if part >= thresholds.HALF or facts.is_counted else "low"
    )
    return Judgement("capacity", sure, tuple(dict.fromkeys(alternatives)), tuple(reasons), "full")
