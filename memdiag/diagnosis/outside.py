"""Failures whose missing memory is outside this allocator: in other processes, or in libraries of this one."""

from __future__ import annotations

from memdiag.diagnosis import thresholds
from memdiag.diagnosis.facts import Facts
from memdiag.results.oom import Cause, Confidence, Judgement
from memdiag.text import phrase
from memdiag.units import format_bytes


def outside(facts: Facts) -> Judgement | None:
    """Judges a failure whose missing memory is outside this allocator."""
    short = phrase("cause.short", free=format_bytes(facts.free), size=format_bytes(facts.requested))
    own_excess = (facts.own_outside or 0) - facts.allowance
    if facts.share(own_excess) >= thresholds.FEW_OUTSIDE and own_excess > facts.foreign_excess:
        sizes = {"process": format_bytes(facts.process), "reserved": format_bytes(facts.reserved)}
        sizes |= {"outside": format_bytes(facts.own_outside), "usual": format_bytes(facts.allowance)}
        reason = phrase("cause.libraries", **sizes)
        return Judgement("workspace_or_comm", "medium", ("capacity", "fragmentation"), (reason, short), "outside")
    if facts.total is None or facts.share(facts.foreign_excess) < thresholds.FEW_OUTSIDE:
        return None
    if facts.process is None and not facts.listed and is_ones_own(facts):
        reason = phrase("cause.outside", outside=format_bytes(facts.outside))
        hccl = phrase("cause.outside.hccl")
        return Judgement(
            "workspace_or_comm", "low", ("other_process", "fragmentation"), (reason, hccl, short), "outside"
        )
    is_clear = facts.process is not None or bool(facts.listed) or facts.share(facts.foreign_excess) >= thresholds.HALF
    alternatives: tuple[Cause, ...] = ("capacity", "fragmentation") if is_clear else ("workspace_or_comm", "capacity")
    if facts.limit is not None:
        alternatives = (*alternatives, "limit")
    is_large = facts.foreign_excess > (facts.reserved or 0)
    # A trace alone cannot separate other processes from this one's libraries, and sufficient slack is another possible
    # cause.
    is_sure = is_clear and is_large and facts.is_printed and facts.missing > 0
    confidence: Confidence = "high" if is_sure else "medium"
    return Judgement("other_process", confidence, alternatives, (*who(facts), short), "outside")


def is_ones_own(facts: Facts) -> bool:
    """Returns whether this process may own the outside memory.

    True if the driver's numbers show it, or if the amount is usual for training on Ascend.
    """
    if facts.process is not None and facts.reserved is not None:
        return (facts.own_outside or 0) > (facts.foreign or 0)
    is_usual = (
        facts.share(facts.reserved) >= thresholds.HALF
        and facts.share(facts.outside) <= thresholds.MOST_OF_ASCEND_OUTSIDE
    )
    return facts.backend == "npu" and is_usual


def who(facts: Facts) -> tuple[str, ...]:
    """Returns the statements about the owners of the memory outside this allocator."""
    others = sum(size for _, size in facts.others)
    sizes = {"total": format_bytes(facts.total), "free": format_bytes(facts.free)}
    if facts.process is not None:
        sizes = {
            "total": sizes["total"],
            "foreign": format_bytes(max(facts.foreign or 0, others)),
            "own": format_bytes(facts.process),
        }
        return (phrase("cause.others", **sizes),)
    sizes |= {"reserved": format_bytes(facts.reserved), "outside": format_bytes(facts.outside)}
    reason = phrase("cause.foreign", usual=format_bytes(facts.allowance), **sizes)
    if facts.strangers:
        pid, size = max(facts.strangers, key=lambda entry: entry[1])
        likely = facts.likely_this
        largest = phrase("cause.foreign.largest", pid=str(pid), size=format_bytes(size))
        this = phrase("cause.foreign.this", pid=str(likely[0]), size=format_bytes(likely[1])) if likely else ""
        return (largest, reason, this) if this else (largest, reason)
    return (reason,)
