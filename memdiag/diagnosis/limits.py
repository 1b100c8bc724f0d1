"""Limits of a process, printed or not: a memory fraction, the watermark of Apple's GPUs, and driver refusals."""

from __future__ import annotations

from memdiag.diagnosis import thresholds
from memdiag.diagnosis.facts import Facts
from memdiag.results.oom import Cause, Judgement
from memdiag.text import phrase
from memdiag.units import format_bytes


def unusable(facts: Facts) -> Judgement | None:
    """Judges a small request on MPS that was refused with nothing in use: the cause is not memory."""
    if facts.backend != "mps" or facts.allocated is None or facts.reserved or facts.allocated or facts.limit is None:
        return None
    if facts.needed > facts.limit // 100:
        return None
    reason = phrase("cause.unusable", size=format_bytes(facts.needed), limit=format_bytes(facts.limit))
    return Judgement("unknown", "high", (), (reason,), "unusable")


def capped(facts: Facts) -> Judgement | None:
    """Judges a failure where a limit of this process was reached, and the device had the memory."""
    held, requested = facts.held or 0, facts.requested or 0
    if facts.limit is None:
        return None
    if held + requested + facts.error < facts.limit + (1 if facts.is_counted else 0):
        return _heaps(facts) if facts.backend == "mps" else _cut_off(facts)
    if facts.free is not None and facts.free + facts.error < requested:
        return None  # the device would have refused as well
    sizes = {"held": format_bytes(held), "size": format_bytes(requested), "sum": format_bytes(held + requested)}
    sizes["limit"] = format_bytes(facts.limit)
    is_reserved = facts.reserved is not None
    reasons = [phrase("cause.capped.reserved", **sizes) if is_reserved else phrase("cause.capped.allocated", **sizes)]
    if held + requested <= facts.limit:
        reasons.append(phrase("cause.capped.rounding"))
    if facts.free is not None:
        reasons.append(phrase("cause.capped.free", free=format_bytes(facts.free)))
    alternatives: list[Cause] = []
    if facts.slack is not None and facts.slack >= facts.needed:
        alternatives.append("fragmentation")
        reasons.append(phrase("cause.capped.slack", slack=format_bytes(facts.slack)))
    alternatives.append("capacity")
    is_sure = facts.backend != "mps" and facts.free is not None and facts.free >= requested + facts.error
    return Judgement("limit", "high" if is_sure else "medium", tuple(alternatives), tuple(reasons), "limit")


def _cut_off(facts: Facts) -> Judgement | None:
    """Judges a message without reserved memory, which counts against the limit: only the free memory decides."""
    if facts.reserved is not None or facts.free is None or facts.free < 2 * facts.needed:
        return None
    sizes = {"limit": format_bytes(facts.limit), "free": format_bytes(facts.free), "size": format_bytes(facts.needed)}
    held = facts.held
    more = (
        phrase("cause.allowed.held", held=format_bytes(held)) if held is not None else phrase("cause.allowed.unknown")
    )
    return Judgement("limit", "medium", ("fragmentation", "unknown"), (phrase("cause.allowed", **sizes), more), "limit")


def _heaps(facts: Facts) -> Judgement:
    """Judges a failure on MPS below the limit: PyTorch reserves memory from Metal in heaps."""
    sizes = {"held": format_bytes(facts.held), "limit": format_bytes(facts.limit), "size": format_bytes(facts.needed)}
    reasons = [phrase("cause.heaps", **sizes)]
    if (facts.held or 0) + max(facts.needed, thresholds.MPS_HEAP) > (facts.limit or 0):
        reasons.append(phrase("cause.heaps.limit"))
        return Judgement("limit", "medium", ("capacity", "unknown"), tuple(reasons), "limit")
    reasons.append(phrase("cause.heaps.metal"))
    return Judgement("unknown", "low", ("capacity", "limit"), tuple(reasons), "refused")


def unseen_limit(facts: Facts) -> Judgement | None:
    """Judges a failure in a trace, without a message, although the device had room for the segment.

    A trace does not contain limits, so an unrecorded one is the likely cause.
    """
    if (
        facts.is_printed
        or not driver_has_it(facts)
        or (facts.total and facts.needed >= thresholds.WHOLE_DEVICE * facts.total)
    ):
        return None
    others: tuple[Cause, ...] = ("fragmentation", "unknown") if facts.missing <= 0 else ("unknown",)
    sizes = {"size": format_bytes(facts.requested), "free": format_bytes(facts.free)}
    return Judgement("limit", "medium", others, (phrase("cause.refused", **sizes),), "refused")


def free_enough(facts: Facts) -> Judgement | None:
    """Judges a refusal although the driver reports enough free memory."""
    if not driver_has_it(facts):
        return None
    size, free = format_bytes(facts.requested), format_bytes(facts.free)
    if facts.share(facts.needed) >= thresholds.WHOLE_DEVICE:
        reason = phrase("cause.whole", size=size, share=f"{facts.share(facts.needed):.0%}", free=free)
        return Judgement("capacity", "medium", ("unknown", "limit"), (reason,), "refused")
    if facts.backend == "xpu" and facts.needed >= thresholds.XPU_LARGEST:
        reason = phrase("cause.level_zero", size=size, free=free)
        return Judgement("limit", "medium", ("unknown", "capacity"), (reason,), "refused")
    fraction = _implied_limit(facts)
    if fraction is not None:
        sizes = {"reserved": format_bytes(facts.reserved), "size": size, "free": free}
        reason = phrase("cause.fraction", share=f"{fraction}%", **sizes)
        return Judgement("limit", "low", ("unknown", "fragmentation"), (reason,), "refused")
    reasons = (phrase("cause.refused", free=free, size=size), phrase("cause.refused.why"))
    return Judgement("unknown", "low", ("capacity", "limit", "fragmentation"), reasons, "refused")


def driver_has_it(facts: Facts) -> bool:
    """Returns whether more is free than requested, and more than on any full device."""
    if facts.free is None or facts.free < (facts.requested or 0):
        return False
    return facts.total is None or facts.free >= max(thresholds.LAST_DROPS * facts.total, thresholds.LAST_DROPS_BYTES)


def _implied_limit(facts: Facts) -> int | None:
    """Returns the round memory fraction, in percent, that this request would have been the first to exceed, or None.

    PyTorch 2.1 and the next versions enforce set_per_process_memory_fraction without printing it.
    """
    requested = facts.requested or 0
    if (
        not facts.total
        or not facts.reserved
        or requested > facts.total // 100
        or (facts.free or 0) < thresholds.MUCH_FREE * facts.total
    ):
        return None
    for percent in range(5, 100, 5):
        allowed = facts.total * percent // 100
        if (
            facts.reserved <= allowed + thresholds.ROUNDING
            and allowed < facts.reserved + requested + thresholds.ROUNDING
        ):
            return percent
    return None
