"""Limits that a process was held to: printed ones, the watermark of Apple's GPUs, and shares that older PyTorch keeps to in silence."""

from __future__ import annotations

from memdiag.oom.arithmetic import ROUNDING, Numbers
from memdiag.oom.model import Found
from memdiag.results.oom import Cause, Judgement
from memdiag.text import phrase
from memdiag.units import GIB, format_bytes

_MPS_HEAP = GIB
_MUCH_FREE = 0.1  # of the card: below it, the device is simply full


def unusable(found: Found, numbers: Numbers, requested: int) -> Judgement | None:
    """Returns the cause of a small request on MPS that was refused with nothing in use: not the memory is the matter."""
    if found.backend != "mps" or numbers.allocated is None or numbers.reserved or numbers.allocated or numbers.limit is None:
        return None
    if requested > numbers.limit // 100:
        return None
    reason = phrase("oom_cause.unusable", size=format_bytes(requested), limit=format_bytes(numbers.limit))
    return Judgement("unknown", "high", (), (reason,))


def capped(found: Found, numbers: Numbers, requested: int) -> Judgement | None:
    """Returns the cause where a limit of this process was reached, and the device had the memory."""
    held = numbers.held or 0
    if numbers.limit is None:
        return None
    if held + requested + ROUNDING < numbers.limit:
        return _heaps(numbers, requested) if found.backend == "mps" else _cut_off(numbers, requested)
    if numbers.free is not None and numbers.free + ROUNDING < requested:
        return None  # the device would have refused as well
    sizes = {"held": format_bytes(held), "size": format_bytes(requested), "sum": format_bytes(held + requested)}
    sizes["limit"] = format_bytes(numbers.limit)
    is_reserved = numbers.reserved is not None
    reasons = [phrase("oom_cause.capped.reserved", **sizes) if is_reserved else phrase("oom_cause.capped.allocated", **sizes)]
    if held + requested <= numbers.limit:
        reasons.append(phrase("oom_cause.capped.rounding"))
    if numbers.free is not None:
        reasons.append(phrase("oom_cause.capped.free", free=format_bytes(numbers.free)))
    alternatives: list[Cause] = []
    if numbers.slack is not None and numbers.slack >= requested:
        alternatives.append("fragmentation")
        reasons.append(phrase("oom_cause.capped.slack", slack=format_bytes(numbers.slack)))
    alternatives.append("capacity")
    return Judgement("limit", "medium" if found.backend == "mps" or numbers.free is None else "high", tuple(alternatives), tuple(reasons))


def _cut_off(numbers: Numbers, requested: int) -> Judgement | None:
    """Judges a message that lost the reserved memory, which counts against the limit: only the free memory decides."""
    if numbers.reserved is not None or numbers.free is None or numbers.free < 2 * requested:
        return None
    sizes = {"limit": format_bytes(numbers.limit), "free": format_bytes(numbers.free), "size": format_bytes(requested)}
    held = numbers.held
    more = phrase("oom_cause.allowed.held", held=format_bytes(held)) if held is not None else phrase("oom_cause.allowed.unknown")
    return Judgement("limit", "medium", ("fragmentation", "unknown"), (phrase("oom_cause.allowed", **sizes), more))


def _heaps(numbers: Numbers, requested: int) -> Judgement:
    """On MPS the limit is reached before the sum says so: memory is taken from Metal in heaps."""
    sizes = {"held": format_bytes(numbers.held), "limit": format_bytes(numbers.limit), "size": format_bytes(requested)}
    reasons = [phrase("oom_cause.heaps", **sizes)]
    if (numbers.held or 0) + max(requested, _MPS_HEAP) > (numbers.limit or 0):
        reasons.append(phrase("oom_cause.heaps.limit"))
        return Judgement("limit", "medium", ("capacity", "unknown"), tuple(reasons))
    reasons.append(phrase("oom_cause.heaps.metal"))
    return Judgement("unknown", "low", ("capacity", "limit"), tuple(reasons))


def implied_limit(numbers: Numbers, requested: int) -> int | None:
    """Returns the round share of the card, in percent, that this request would have been the first to exceed; None if there is none.

    PyTorch 2.1 and the next versions keep to set_per_process_memory_fraction without printing it.
    """
    if not numbers.total or not numbers.reserved or requested > numbers.total // 100 or (numbers.free or 0) < _MUCH_FREE * numbers.total:
        return None
    for percent in range(5, 100, 5):
        allowed = numbers.total * percent // 100
        if numbers.reserved <= allowed + ROUNDING and allowed < numbers.reserved + requested + ROUNDING:
            return percent
    return None
