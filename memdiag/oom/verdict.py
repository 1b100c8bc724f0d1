"""The cause behind an allocator's numbers: which of them left no room for the request.

If ``allocated + requested`` fits the device, the missing memory is either reserved here and unused, or outside this allocator. The rules
therefore first test whether the request would fit without fragmentation, then whether a limit was reached, and then compare the two.
The thresholds were set on real messages with known causes.
"""

from __future__ import annotations

from memdiag.oom.arithmetic import ROUNDING, Numbers, numbers_of
from memdiag.oom.limits import capped, implied_limit, unusable
from memdiag.oom.model import Found
from memdiag.oom.surroundings import without_numbers
from memdiag.results.oom import Cause, Confidence, Judgement
from memdiag.text import Phrase, joined, phrase
from memdiag.units import GIB, MIB, TIB, format_bytes

_GARBAGE = 64 * TIB  # larger than any device: the length was computed from garbage
_SMALL_SLACK = 0.03  # share of the device: any run leaves this much slack
_FEW_OUTSIDE = 0.15  # share of the device: less than this in other processes is not the main cause
_SLACK_TO_FOREIGN = 0.25  # less slack than this share of other processes' memory is not the main cause
_WHOLE_CARD = 0.9  # share of the device: the driver cannot serve such a request, however much it reports as free
_LAST_DROPS = 0.02  # share of the device: the driver may not allocate this much, nor 128 MiB, of its free memory
_LAST_DROPS_BYTES = 128 * MIB
_JUST_OVER = 1.03  # times the request: with less free memory and slack it may not fit even without fragmentation
_PLENTY = 0.1  # share of the device: with this much free, and twice the request, slack is not the cause
_FULL = 0.7
_MOST_OF_CARD = 0.8  # share of the device: more than any run leaves unused in its own allocator
_MUCH_IDLE = 0.25  # share of reserved memory: more than the slack of any successful run
_XPU_LARGEST = 4 * GIB


def judge(found: Found, context: str = "") -> Judgement:
    """Returns the cause of a message.

    Args:
        found: The message; its own judgement, if it has one, is returned as it is.
        context: The lines around it, as they stood.
    """
    if found.judgement is not None:
        return found.judgement
    numbers = numbers_of(found.fields, found.backend)
    if found.backend == "cpu":
        size = format_bytes(numbers.requested) if numbers.requested is not None else ""
        return Judgement("host", "high", (), (phrase("oom_cause.host.size", size=size) if size else phrase("oom_cause.host"),))
    if all(number is None for number in (numbers.requested, numbers.total, numbers.free, numbers.held)):
        return without_numbers(context)
    if numbers.requested is None:
        return _idle(numbers) or _cut(numbers, phrase("oom_cause.missing.request"), ("capacity", "fragmentation"))
    return (
        unusable(found, numbers, numbers.requested)
        or _hopeless(numbers, numbers.requested)
        or _oversubscribed(numbers, numbers.requested)
        or capped(found, numbers, numbers.requested)
        or _pools(numbers, numbers.requested)
        or _incomplete(found, numbers, numbers.requested)
        or _slack(found, numbers, numbers.requested)
        or _free_enough(found, numbers, numbers.requested)
        or _outside(found, numbers, numbers.requested)
        or _full(found, numbers, numbers.requested)
    )


def _idle(numbers: Numbers) -> Judgement | None:
    """Judges a message without its head: much of the reserved memory is unused."""
    slack = numbers.slack or 0
    if numbers.reserved is None or slack < max(_MUCH_IDLE * numbers.reserved, GIB):
        return None
    share = f"{slack / numbers.reserved:.0%}"
    reason = phrase("oom_cause.idle", slack=format_bytes(slack), reserved=format_bytes(numbers.reserved), share=share)
    return Judgement("fragmentation", "low", ("unknown", "capacity"), (reason, phrase("oom_cause.idle.request")))


def _cut(numbers: Numbers, missing: str, alternatives: tuple[Cause, ...]) -> Judgement:
    sizes = {
        "requested": numbers.requested, "total": numbers.total, "free": numbers.free, "allocated": numbers.allocated,
        "unallocated": numbers.slack,
    }  # fmt: skip
    known = [phrase(f"oom_cause.known.{name}", size=format_bytes(size)) for name, size in sizes.items() if size is not None]
    told = phrase("oom_cause.known", sizes=joined(known, ", ")) if known else ""
    return Judgement("unknown", "low", alternatives, (joined([phrase("oom_cause.missing", what=missing), told]),))


def _hopeless(numbers: Numbers, requested: int) -> Judgement | None:
    """Judges a request that does not fit the device even without fragmentation."""
    size = format_bytes(requested)
    if requested >= _GARBAGE and numbers.total is None:
        return Judgement("unknown", "high", ("capacity",), (phrase("oom_cause.absurd", size=size),))
    if numbers.total is None:
        return None
    total = format_bytes(numbers.total)
    if requested > numbers.total:
        times = f"{requested / max(numbers.total, 1):.1f}"
        reason = phrase("oom_cause.larger", size=size, total=total, times=times)
        if numbers.free is not None and numbers.free > numbers.total + ROUNDING:
            doubt = phrase("oom_cause.larger.free", free=format_bytes(numbers.free))
            return Judgement("capacity", "medium", ("unknown",), (reason, doubt))
        if requested >= _GARBAGE:
            return Judgement("capacity", "medium", ("unknown",), (reason, phrase("oom_cause.larger.absurd")))
        return Judgement("capacity", "high", (), (reason,))
    used = numbers.live if numbers.allocated is not None else numbers.process
    if used is None or numbers.oversubscribed or used + requested <= numbers.total:
        return None
    sizes = {"used": format_bytes(used), "size": size, "sum": format_bytes(used + requested), "total": total}
    is_allocated = numbers.allocated is not None
    reasons = [phrase("oom_cause.packed", **sizes) if is_allocated else phrase("oom_cause.packed.process", **sizes)]
    alternatives: list[Cause] = []
    if numbers.slack is None or numbers.share(numbers.slack) >= _SMALL_SLACK:
        alternatives.append("fragmentation")
    if numbers.foreign_excess >= _FEW_OUTSIDE * numbers.total:
        alternatives.append("other_process")
        reasons.append(phrase("oom_cause.packed.foreign", foreign=format_bytes(numbers.foreign)))
    if numbers.limit is not None:
        alternatives.append("limit")
    sure = used + requested > numbers.total + ROUNDING and numbers.allocated is not None
    return Judgement("capacity", "high" if sure else "medium", tuple(alternatives), tuple(reasons))


def _oversubscribed(numbers: Numbers, requested: int) -> Judgement | None:
    """Judges a message that counts more as allocated than the device has: paged to the host, or in sleeping pools that still count."""
    if not numbers.oversubscribed:
        return None
    asleep = numbers.pool > 0 or (numbers.process is not None and numbers.process <= (numbers.total or 0))
    sizes = {"allocated": format_bytes(numbers.allocated), "total": format_bytes(numbers.total)}
    counted = phrase("oom_cause.asleep", **sizes) if asleep else phrase("oom_cause.paged", **sizes)
    if numbers.slack is not None and numbers.slack >= requested:
        slack = phrase("oom_cause.slack.request", slack=format_bytes(numbers.slack), size=format_bytes(requested))
        if asleep:
            return Judgement("fragmentation", "low", ("unknown", "capacity"), (slack, counted))
        return Judgement("capacity", "medium", ("fragmentation",), (counted, slack))
    sizes = {"free": format_bytes(numbers.free), "slack": format_bytes(numbers.slack)}
    left = phrase("oom_cause.left", **sizes) if numbers.slack is not None else phrase("oom_cause.left.free", free=sizes["free"])
    if numbers.free is None:
        left = phrase("oom_cause.left.unknown")
    return Judgement("capacity", "low" if asleep else "medium", ("unknown",), (counted, left))


def _pools(numbers: Numbers, requested: int) -> Judgement | None:
    """Judges a message in which private pools hold the missing memory."""
    short = requested - (numbers.free or 0)
    if numbers.pool < max(short, numbers.slack or 0) or numbers.share(numbers.pool) < _FEW_OUTSIDE:
        return None
    reason = phrase("oom_cause.pools", pool=format_bytes(numbers.pool))
    told = phrase("oom_cause.pools.printed")
    sure: Confidence = "high" if numbers.share(numbers.pool) >= 0.5 else "medium"
    return Judgement("workspace_or_comm", sure, ("capacity", "fragmentation"), (reason, told))


def _incomplete(found: Found, numbers: Numbers, requested: int) -> Judgement | None:
    """Judges messages with too few numbers to compare slack with memory outside: of other frameworks, of XPUs, or cut off."""
    if None not in {numbers.total, numbers.free, numbers.allocated, numbers.slack}:
        return None
    size = format_bytes(requested)
    if numbers.slack is not None and _much_slack(numbers, requested):
        return Judgement("fragmentation", "medium", ("capacity", "other_process"), (_enough_slack(numbers, requested),))
    enough = _free_enough(found, numbers, requested)
    if enough is not None:
        return enough
    if numbers.allocated is None:
        return _without_allocated(numbers, requested)
    sizes = {"allocated": format_bytes(numbers.allocated), "free": format_bytes(numbers.free), "size": size}
    if numbers.total is None:
        if numbers.free is None and found.framework in {"pytorch", "torch_npu"}:
            return _cut(numbers, phrase("oom_cause.missing.device"), ("capacity", "fragmentation"))
        reason = phrase("oom_cause.use.free", **sizes) if numbers.free is not None else phrase("oom_cause.use", **sizes)
        return Judgement("capacity", "low", ("other_process", "unknown"), (reason,))
    part = numbers.share(numbers.allocated)
    allocated = phrase("oom_cause.part", allocated=sizes["allocated"], total=format_bytes(numbers.total), share=f"{part:.0%}")
    if numbers.free is None:
        if part < _FULL and found.backend == "xpu" and requested >= _XPU_LARGEST:
            reason = phrase("oom_cause.level_zero.part", size=size, part=allocated)
            return Judgement("limit", "medium", ("unknown", "capacity"), (reason,))
        if part >= _FULL:
            return Judgement(
                "capacity", "medium", ("other_process", "fragmentation"), (phrase("oom_cause.part.request", part=allocated, size=size),)
            )
        likely: tuple[Cause, ...] = ("limit", "other_process") if found.backend == "xpu" else ("other_process", "capacity")
        return _cut(numbers, phrase("oom_cause.missing.free"), likely)
    return _unsplit(found, numbers, requested, allocated)


def _without_allocated(numbers: Numbers, requested: int) -> Judgement:
    """Judges a message that contains numbers of the driver only."""
    size = format_bytes(requested)
    if numbers.total is None and numbers.free is not None:
        reason = phrase("oom_cause.short", free=format_bytes(numbers.free), size=size)
        return Judgement("capacity", "low", ("other_process", "unknown"), (reason,))
    if numbers.process is not None and numbers.share(numbers.foreign_excess) >= 0.5:
        return Judgement("other_process", "medium", ("capacity",), _who(numbers))
    if numbers.share(numbers.process) >= _FULL:
        held = phrase("oom_cause.process", process=format_bytes(numbers.process), total=format_bytes(numbers.total), size=size)
        return Judgement("capacity", "low", ("fragmentation", "unknown"), (held, phrase("oom_cause.process.tensors")))
    return _cut(numbers, phrase("oom_cause.missing.allocated"), ("capacity", "other_process"))


def _unsplit(found: Found, numbers: Numbers, requested: int, allocated: Phrase) -> Judgement:
    """Judges a message without the reserved memory: the gap is slack, outside memory, or both."""
    gap, own = numbers.outside or 0, (numbers.process or 0) - (numbers.allocated or 0)
    if numbers.process is None:
        if gap <= numbers.allowance or numbers.share(numbers.allocated) >= _FULL:
            reason = phrase("oom_cause.part.free", part=allocated, free=format_bytes(numbers.free), size=format_bytes(requested))
            sure: Confidence = "high" if gap <= numbers.allowance and numbers.share(numbers.allocated) >= _FULL else "medium"
            return Judgement("capacity", sure, ("fragmentation", "other_process"), (reason,))
        if numbers.share(gap - numbers.allowance) >= _MOST_OF_CARD:
            return _mostly_foreign(numbers, gap)
        return _cut(numbers, phrase("oom_cause.missing.reserved", gap=format_bytes(gap)), ("other_process", "fragmentation"))
    if numbers.share(numbers.foreign_excess) >= _FEW_OUTSIDE and numbers.foreign_excess > own - numbers.allowance:
        return Judgement("other_process", "medium", ("fragmentation", "capacity"), _who(numbers))
    if own - numbers.allowance >= requested and numbers.share(own) >= _FEW_OUTSIDE:
        reason = phrase("oom_cause.own", process=format_bytes(numbers.process), part=allocated, own=format_bytes(own))
        return Judgement("fragmentation", "low", ("workspace_or_comm", "capacity"), (reason,))
    return _full(found, numbers, requested)


def _mostly_foreign(numbers: Numbers, gap: int) -> Judgement:
    """Judges a nearly full device of which tensors of this process use almost nothing."""
    sizes = {"gap": format_bytes(gap), "total": format_bytes(numbers.total), "allocated": format_bytes(numbers.allocated)}
    reasons = [phrase("oom_cause.taken", **sizes)]
    listed = numbers.others or numbers.listed
    if listed:
        shown = [phrase("oom_cause.listed.process", pid=str(pid), size=format_bytes(size)) for pid, size in listed]
        reasons.append(phrase("oom_cause.listed", processes=joined(shown, ", ")))
    return Judgement("other_process", "medium" if listed else "low", ("fragmentation", "capacity"), tuple(reasons))


def _much_slack(numbers: Numbers, requested: int) -> bool:
    slack = numbers.slack or 0
    reference = numbers.total if numbers.total is not None else numbers.reserved
    return slack >= requested and slack >= _SMALL_SLACK * (reference or 0)


def _enough_slack(numbers: Numbers, requested: int) -> Phrase:
    return phrase("oom_cause.slack", slack=format_bytes(numbers.slack), size=format_bytes(requested))


def _slack(found: Found, numbers: Numbers, requested: int) -> Judgement | None:
    """Judges a message with enough slack, alone or with the free memory, that is not small compared with other processes."""
    slack, free = numbers.slack or 0, numbers.free or 0
    plenty = free >= 2 * requested and numbers.share(free) >= _PLENTY
    if plenty or slack < _SLACK_TO_FOREIGN * numbers.foreign_excess:
        return None
    rivals: list[Cause] = []
    if numbers.share(numbers.foreign_excess) >= _FEW_OUTSIDE / 2:
        rivals.append("workspace_or_comm" if _is_ones_own(found, numbers) else "other_process")
    if _much_slack(numbers, requested):
        reasons = [_enough_slack(numbers, requested)]
        if rivals:
            reasons.append(phrase("oom_cause.outside", outside=format_bytes(numbers.outside)))
        if _driver_has_it(numbers, requested):
            reasons.append(phrase("oom_cause.slack.free", free=format_bytes(free)))
            rivals.append("unknown")
        sure = not rivals and slack >= 1.2 * requested and numbers.share(slack) >= 2 * _SMALL_SLACK
        return Judgement("fragmentation", "high" if sure else "medium", (*rivals, "capacity"), tuple(reasons))
    if free < requested and free + slack >= _JUST_OVER * requested and numbers.share(slack) >= _SMALL_SLACK:
        sizes = {"free": format_bytes(free), "slack": format_bytes(slack), "sum": format_bytes(free + slack)}
        size, live, total = format_bytes(requested), format_bytes(numbers.live), format_bytes(numbers.total)
        clear = slack >= requested / 2 and free + slack >= 1.2 * requested
        reasons = [phrase("oom_cause.both", size=size, **sizes), phrase("oom_cause.both.packed", live=live, size=size, total=total)]
        if not clear:
            reasons.append(phrase("oom_cause.both.close"))
        return Judgement("fragmentation", "medium" if clear else "low", ("capacity", *rivals), tuple(reasons))
    return None


def _free_enough(found: Found, numbers: Numbers, requested: int) -> Judgement | None:
    """Judges a refusal although the driver reports enough free memory."""
    if not _driver_has_it(numbers, requested):
        return None
    size, free = format_bytes(requested), format_bytes(numbers.free)
    if numbers.share(requested) >= _WHOLE_CARD:
        reason = phrase("oom_cause.whole", size=size, share=f"{numbers.share(requested):.0%}", free=free)
        return Judgement("capacity", "medium", ("unknown", "limit"), (reason,))
    if found.backend == "xpu" and requested >= _XPU_LARGEST:
        reason = phrase("oom_cause.level_zero", size=size, free=free)
        return Judgement("limit", "medium", ("unknown", "capacity"), (reason,))
    fraction = implied_limit(numbers, requested)
    if fraction is not None:
        sizes = {"reserved": format_bytes(numbers.reserved), "size": size, "free": free}
        reason = phrase("oom_cause.fraction", share=f"{fraction}%", **sizes)
        return Judgement("limit", "low", ("unknown", "fragmentation"), (reason,))
    reasons = (phrase("oom_cause.refused", free=free, size=size), phrase("oom_cause.refused.why"))
    return Judgement("unknown", "low", ("capacity", "limit", "fragmentation"), reasons)


def _driver_has_it(numbers: Numbers, requested: int) -> bool:
    """Returns whether more is free than requested, and more than remains on any full device."""
    if numbers.free is None or numbers.free < requested:
        return False
    return numbers.total is None or numbers.free >= max(_LAST_DROPS * numbers.total, _LAST_DROPS_BYTES)


def _is_ones_own(found: Found, numbers: Numbers) -> bool:
    """Returns whether this process may own the outside memory: by the driver's numbers, or as usual for training on Ascend."""
    if numbers.process is not None and numbers.reserved is not None:
        return (numbers.own_outside or 0) > (numbers.foreign or 0)
    return found.backend == "npu" and numbers.share(numbers.reserved) >= 0.5 and numbers.share(numbers.outside) <= 0.3


def _outside(found: Found, numbers: Numbers, requested: int) -> Judgement | None:
    """Judges a message whose missing memory is outside this allocator: in other processes, or in libraries of this one."""
    short = phrase("oom_cause.short", free=format_bytes(numbers.free), size=format_bytes(requested))
    own_excess = (numbers.own_outside or 0) - numbers.allowance
    if numbers.share(own_excess) >= _FEW_OUTSIDE and own_excess > numbers.foreign_excess:
        sizes = {"process": format_bytes(numbers.process), "reserved": format_bytes(numbers.reserved)}
        sizes |= {"outside": format_bytes(numbers.own_outside), "usual": format_bytes(numbers.allowance)}
        reason = phrase("oom_cause.libraries", **sizes)
        return Judgement("workspace_or_comm", "medium", ("capacity", "fragmentation"), (reason, short))
    if numbers.share(numbers.foreign_excess) < _FEW_OUTSIDE:
        return None
    if numbers.process is None and not numbers.listed and _is_ones_own(found, numbers):
        reason = phrase("oom_cause.outside", outside=format_bytes(numbers.outside))
        hccl = phrase("oom_cause.outside.hccl")
        return Judgement("workspace_or_comm", "low", ("other_process", "fragmentation"), (reason, hccl, short))
    clear = numbers.process is not None or bool(numbers.listed) or numbers.share(numbers.foreign_excess) >= 0.5
    alternatives: tuple[Cause, ...] = ("capacity", "fragmentation") if clear else ("workspace_or_comm", "capacity")
    if numbers.limit is not None:
        alternatives = (*alternatives, "limit")
    large = numbers.foreign_excess > (numbers.reserved or 0)
    little = (numbers.slack or 0) < max(requested, _SMALL_SLACK * numbers.foreign_excess)
    sure: Confidence = "high" if clear and large and little else "medium"
    return Judgement("other_process", sure, alternatives, (*_who(numbers), short))


def _who(numbers: Numbers) -> tuple[str, ...]:
    others = sum(size for _, size in numbers.others)
    sizes = {"total": format_bytes(numbers.total), "free": format_bytes(numbers.free)}
    if numbers.process is not None:
        sizes = {"total": sizes["total"], "foreign": format_bytes(max(numbers.foreign or 0, others)), "own": format_bytes(numbers.process)}
        return (phrase("oom_cause.others", **sizes),)
    sizes |= {"reserved": format_bytes(numbers.reserved), "outside": format_bytes(numbers.outside)}
    reason = phrase("oom_cause.foreign", usual=format_bytes(numbers.allowance), **sizes)
    if numbers.strangers:
        pid, size = max(numbers.strangers, key=lambda entry: entry[1])
        likely = numbers.likely_this
        largest = phrase("oom_cause.foreign.largest", pid=str(pid), size=format_bytes(size))
        this = phrase("oom_cause.foreign.this", pid=str(likely[0]), size=format_bytes(likely[1])) if likely else ""
        return (largest, reason, this) if this else (largest, reason)
    return (reason,)


def _full(found: Found, numbers: Numbers, requested: int) -> Judgement:
    """Judges a message that only live tensors explain."""
    part = numbers.share(numbers.live)
    sizes = {"live": format_bytes(numbers.live), "total": format_bytes(numbers.total), "share": f"{part:.0%}"}
    reasons = [phrase("oom_cause.full", size=format_bytes(requested), free=format_bytes(numbers.free), **sizes)]
    alternatives: list[Cause] = []
    if numbers.slack is not None:
        reasons.append(phrase("oom_cause.full.slack", slack=format_bytes(numbers.slack), share=f"{numbers.share(numbers.slack):.1%}"))
        if numbers.slack >= requested:
            alternatives.append("fragmentation")
    if (numbers.foreign or 0) >= max(requested - (numbers.free or 0), 1) and (numbers.process is None or numbers.others):
        alternatives.append("workspace_or_comm" if _is_ones_own(found, numbers) else "other_process")
        reasons.append(phrase("oom_cause.full.outside", outside=format_bytes(numbers.outside)))
    if "workspace_or_comm" not in alternatives and (numbers.own_outside or 0) > 2 * numbers.allowance:
        alternatives.append("workspace_or_comm")
        reasons.append(phrase("oom_cause.full.libraries", outside=format_bytes(numbers.own_outside)))
    if numbers.limit is not None:
        alternatives.append("limit")
    sure: Confidence = "high" if part >= 0.85 and not alternatives else "medium" if part >= 0.5 else "low"
    return Judgement("capacity", sure, tuple(alternatives), tuple(reasons))
