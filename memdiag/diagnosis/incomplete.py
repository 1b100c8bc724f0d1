"""Judges failures with too few facts to compare slack with memory outside the allocator.

Such facts come from messages of other frameworks, of XPUs, or truncated ones.
"""

from __future__ import annotations

from memdiag.diagnosis import thresholds
from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.limits import free_enough
from memdiag.diagnosis.live import full
from memdiag.diagnosis.outside import who
from memdiag.results.oom import Cause, Confidence, Judgement
from memdiag.text import Phrase, joined, phrase
from memdiag.units import GIB, format_bytes


def idle(facts: Facts) -> Judgement | None:
    """Judges a message without its head: much of the reserved memory is unused."""
    slack = facts.slack or 0
    if facts.reserved is None or slack < max(thresholds.MUCH_IDLE * facts.reserved, GIB):
        return None
    share = f"{slack / facts.reserved:.0%}"
    reason = phrase("cause.idle", slack=format_bytes(slack), reserved=format_bytes(facts.reserved), share=share)
    return Judgement("fragmentation", "low", ("unknown", "capacity"), (reason, phrase("cause.idle.request")))


def lacking(facts: Facts, missing: str, alternatives: tuple[Cause, ...]) -> Judgement:
    """Returns the verdict for a message that lacks a decisive number, based on the others."""
    sizes = {
        "requested": facts.requested,
        "total": facts.total,
        "free": facts.free,
        "allocated": facts.allocated,
        "unallocated": facts.slack,
    }
    known = [phrase(f"cause.known.{name}", size=format_bytes(size)) for name, size in sizes.items() if size is not None]
    known_sizes = phrase("cause.known", sizes=joined(known, ", ")) if known else ""
    return Judgement("unknown", "low", alternatives, (joined([phrase("cause.missing", what=missing), known_sizes]),))


def incomplete(facts: Facts) -> Judgement | None:
    """Judges messages with too few numbers to compare slack with memory outside the allocator."""
    if facts.is_counted or None not in {facts.total, facts.free, facts.allocated, facts.slack}:
        return None
    size = format_bytes(facts.requested)
    if facts.slack is not None and facts.has_much_slack:
        enough_slack = phrase("cause.slack", slack=format_bytes(facts.slack), size=size)
        return Judgement("fragmentation", "medium", ("capacity", "other_process"), (enough_slack,))
    enough = free_enough(facts)
    if enough is not None:
        return enough
    if facts.allocated is None:
        return _without_allocated(facts)
    sizes = {"allocated": format_bytes(facts.allocated), "free": format_bytes(facts.free), "size": size}
    if facts.total is None:
        if facts.free is None and facts.framework in {"pytorch", "torch_npu"}:
            return lacking(facts, phrase("cause.missing.device"), ("capacity", "fragmentation"))
        reason = phrase("cause.use.free", **sizes) if facts.free is not None else phrase("cause.use", **sizes)
        return Judgement("capacity", "low", ("other_process", "unknown"), (reason,))
    part = facts.share(facts.allocated)
    allocated = phrase("cause.part", allocated=sizes["allocated"], total=format_bytes(facts.total), share=f"{part:.0%}")
    if facts.free is None:
        if part < thresholds.FULL and facts.backend == "xpu" and facts.needed >= thresholds.XPU_LARGEST:
            reason = phrase("cause.level_zero.part", size=size, part=allocated)
            return Judgement("limit", "medium", ("unknown", "capacity"), (reason,))
        if part >= thresholds.FULL:
            return Judgement(
                "capacity",
                "medium",
                ("other_process", "fragmentation"),
                (phrase("cause.part.request", part=allocated, size=size),),
            )
        likely: tuple[Cause, ...] = (
            ("limit", "other_process") if facts.backend == "xpu" else ("other_process", "capacity")
        )
        return lacking(facts, phrase("cause.missing.free"), likely)
    return _unsplit(facts, allocated)


def _without_allocated(facts: Facts) -> Judgement:
    """Judges a message that contains only driver numbers."""
    size = format_bytes(facts.requested)
    if facts.total is None and facts.free is not None:
        reason = phrase("cause.short", free=format_bytes(facts.free), size=size)
        return Judgement("capacity", "low", ("other_process", "unknown"), (reason,))
    if facts.process is not None and facts.share(facts.foreign_excess) >= thresholds.HALF:
        return Judgement("other_process", "medium", ("capacity",), who(facts))
    if facts.share(facts.process) >= thresholds.FULL:
        held = phrase("cause.process", process=format_bytes(facts.process), total=format_bytes(facts.total), size=size)
        return Judgement("capacity", "low", ("fragmentation", "unknown"), (held, phrase("cause.process.tensors")))
    return lacking(facts, phrase("cause.missing.allocated"), ("capacity", "other_process"))


def _unsplit(facts: Facts, allocated: Phrase) -> Judgement:
    """Judges a message without the reserved memory: the gap is slack, outside memory, or both."""
    gap, own = facts.outside or 0, (facts.process or 0) - (facts.allocated or 0)
    if facts.process is None:
        if gap <= facts.allowance or facts.share(facts.allocated) >= thresholds.FULL:
            reason = phrase(
                "cause.part.free", part=allocated, free=format_bytes(facts.free), size=format_bytes(facts.requested)
            )
            sure: Confidence = (
                "high" if gap <= facts.allowance and facts.share(facts.allocated) >= thresholds.FULL else "medium"
            )
            return Judgement("capacity", sure, ("fragmentation", "other_process"), (reason,))
        if facts.share(gap - facts.allowance) >= thresholds.MOST_OF_DEVICE:
            return _mostly_foreign(facts, gap)
        return lacking(
            facts, phrase("cause.missing.reserved", gap=format_bytes(gap)), ("other_process", "fragmentation")
        )
    if facts.share(facts.foreign_excess) >= thresholds.FEW_OUTSIDE and facts.foreign_excess > own - facts.allowance:
        return Judgement("other_process", "medium", ("fragmentation", "capacity"), who(facts))
    if own - facts.allowance >= facts.needed and facts.share(own) >= thresholds.FEW_OUTSIDE:
        reason = phrase("cause.own", process=format_bytes(facts.process), part=allocated, own=format_bytes(own))
        return Judgement("fragmentation", "low", ("workspace_or_comm", "capacity"), (reason,))
    return full(facts)


def _mostly_foreign(facts: Facts, gap: int) -> Judgement:
    """Judges a nearly full device of which this process's tensors use almost nothing."""
    sizes = {"gap": format_bytes(gap), "total": format_bytes(facts.total), "allocated": format_bytes(facts.allocated)}
    reasons = [phrase("cause.taken", **sizes)]
    listed = facts.others or facts.listed
    if listed:
        shown = [phrase("cause.listed.process", pid=str(pid), size=format_bytes(size)) for pid, size in listed]
        reasons.append(phrase("cause.listed", processes=joined(shown, ", ")))
    return Judgement("other_process", "medium" if listed else "low", ("fragmentation", "capacity"), tuple(reasons))
