"""Failures of programs whose memory grows: free blocks are not the cause if growth would soon have filled them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memdiag.diagnosis.facts import Facts
from memdiag.results.oom import Judgement
from memdiag.text import phrase
from memdiag.units import format_bytes


@dataclass(frozen=True, slots=True)
class GrowingMemory:
    """Memory that grows until the program fails.

    Attributes:
        title: The growing memory, in the words of a finding.
        rate_bytes: Growth in one step or pass; 0: unknown.
        soon: Steps or passes that count as soon.
    """

    title: str
    rate_bytes: float
    soon: int


def despite_growth(judgement: Judgement, facts: Facts, growth: GrowingMemory) -> Judgement:
    """Returns a judgement that puts growth first.

    Fragmentation is not the cause if growth would soon have filled all memory that defragmentation frees.
    """
    free = (facts.slack or 0) + facts.pool
    spare = free - facts.needed
    lasts = not growth.rate_bytes or spare >= growth.soon * growth.rate_bytes
    if judgement.verdict != "fragmentation" or lasts:
        return replace(judgement, reasons=(phrase("cause.grows", title=growth.title), *judgement.reasons))
    text = phrase("cause.grows.soon", title=growth.title, free=format_bytes(free))
    others = (
        "fragmentation",
        *(other for other in judgement.alternatives if other not in {"fragmentation", "capacity"}),
    )
    return replace(judgement, verdict="capacity", alternatives=others, reasons=(text, *judgement.reasons))
