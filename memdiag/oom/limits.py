"""Limits that a process was held to: printed ones, the watermark of Apple's GPUs, and shares that older PyTorch keeps to in silence."""

from __future__ import annotations

from memdiag.oom.arithmetic import ROUNDING, Numbers
from memdiag.oom.model import Cause, Found, Judgement
from memdiag.units import GIB, format_bytes

_MPS_HEAP = GIB
_MUCH_FREE = 0.1  # of the card: below it, the device is simply full


def unusable(found: Found, numbers: Numbers, requested: int) -> Judgement | None:
    """Returns the cause of a small request on MPS that was refused with nothing in use: not the memory is the matter."""
    if found.backend != "mps" or numbers.allocated is None or numbers.reserved or numbers.allocated or numbers.limit is None:
        return None
    if requested > numbers.limit // 100:
        return None
    reason = (
        f"{format_bytes(requested)} of {format_bytes(numbers.limit)} allowed was refused with nothing in use: the GPU cannot be used here "
        "(a virtual machine, a CI runner)."
    )
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
    what = "reserved" if numbers.reserved is not None else "allocated"
    wanted = f"{format_bytes(held)} {what} + {format_bytes(requested)} requested = {format_bytes(held + requested)}"
    over = held + requested > numbers.limit
    rounded = "" if over else ": as much, within the rounding of what is printed"
    reasons = [f"{wanted}, and this process is allowed {format_bytes(numbers.limit)}{rounded}."]
    if numbers.free is not None:
        reasons.append(f"The device has {format_bytes(numbers.free)} free, which would have been enough.")
    alternatives: list[Cause] = []
    if numbers.slack is not None and numbers.slack >= requested:
        alternatives.append("fragmentation")
        reasons.append(f"Within the limit, {format_bytes(numbers.slack)} is reserved but unallocated: pieces too small for the request.")
    alternatives.append("capacity")
    return Judgement("limit", "medium" if found.backend == "mps" or numbers.free is None else "high", tuple(alternatives), tuple(reasons))


def _cut_off(numbers: Numbers, requested: int) -> Judgement | None:
    """What is reserved counts against the limit; where that part of a message was cut off, only what the device has free tells."""
    if numbers.reserved is not None or numbers.free is None or numbers.free < 2 * requested:
        return None
    limit, held = format_bytes(numbers.limit), format_bytes(numbers.held)
    reasons = (
        f"This process is allowed {limit}, and {format_bytes(numbers.free)} is free, more than the {format_bytes(requested)} asked for.",
        f"It holds at least {held}; what is reserved beside that counts as well, and is not printed." if numbers.held is not None
        else "What it holds is not printed.",
    )  # fmt: skip
    return Judgement("limit", "medium", ("fragmentation", "unknown"), reasons)


def _heaps(numbers: Numbers, requested: int) -> Judgement:
    """On MPS the limit is reached before the sum says so: memory is taken from Metal in heaps."""
    held, allowed, size = format_bytes(numbers.held), format_bytes(numbers.limit), format_bytes(requested)
    reasons = [f"{held} in use + {size} requested stays within the {allowed} that this process is allowed."]
    if (numbers.held or 0) + max(requested, _MPS_HEAP) > (numbers.limit or 0):
        reasons.append("But PyTorch takes memory from Metal in heaps of up to 1 GiB, and a whole one would exceed it.")
        return Judgement("limit", "medium", ("capacity", "unknown"), tuple(reasons))
    reasons.append("Then Metal itself refused: other programs use the memory, which all of them share, or the piece is too large.")
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
