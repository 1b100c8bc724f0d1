"""The cause behind an allocator's numbers: which of them left no room for the request.

Once ``allocated + requested`` fits the card, what is missing must lie in one of two places: reserved here and unused, or outside this
allocator. So the rules go from what nothing can mend (the request does not fit even when all is packed) by what the process
itself was denied (a limit) to a comparison of the two. Shares of the card were set by real messages whose cause is known.
"""

from __future__ import annotations

from memdiag.oom.arithmetic import ROUNDING, Numbers, numbers_of
from memdiag.oom.limits import capped, implied_limit, unusable
from memdiag.oom.model import Cause, Confidence, Found, Judgement
from memdiag.oom.surroundings import without_numbers
from memdiag.units import GIB, MIB, TIB, format_bytes

_GARBAGE = 64 * TIB  # no card of this size exists, and no shape that was meant: a length that was read from garbage
_SMALL_SLACK = 0.03  # below this part of the card, slack is the dust that any run leaves
_FEW_OUTSIDE = 0.15  # below this part of the card, other processes are the drop, not the cup
_SLACK_TO_FOREIGN = 0.25  # slack that is less than this part of what others hold is not the story
_WHOLE_CARD = 0.9  # a request of this part of the card cannot be served, whatever the driver says is free
_LAST_DROPS = 0.02  # so much of a card, and 128 MiB, may not be given out, whatever the driver says
_LAST_DROPS_BYTES = 128 * MIB
_JUST_OVER = 1.03  # free and slack that are less than this times the request: that it would fit in one piece is not safe to say
_PLENTY = 0.1  # this part of the card free, and twice the request: not what the allocator holds is the matter
_FULL = 0.7
_MOST_OF_CARD = 0.8  # so much that is not allocated here: no run leaves that much of its own unused
_MUCH_IDLE = 0.25  # of what is reserved: more than the slack of any run that goes well
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
        size = f" for {format_bytes(numbers.requested)}" if numbers.requested is not None else ""
        return Judgement("host", "high", (), (f"The request{size} was made of the host's memory, not of a device.",))
    if all(number is None for number in (numbers.requested, numbers.total, numbers.free, numbers.held)):
        return without_numbers(context)
    if numbers.requested is None:
        return _idle(numbers) or _cut(numbers, "the size of the request", ("capacity", "fragmentation"))
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
    """Of a message whose head is cut off: much of what is reserved lies unused."""
    slack = numbers.slack or 0
    if numbers.reserved is None or slack < max(_MUCH_IDLE * numbers.reserved, GIB):
        return None
    part = f"{format_bytes(slack)} of the {format_bytes(numbers.reserved)} that is reserved ({slack / numbers.reserved:.0%}) is unallocated"
    reason = f"{part}: most requests would fit into that if it were in one piece."
    return Judgement("fragmentation", "low", ("unknown", "capacity"), (reason, "How much was asked for is not printed, or was cut off."))


def _cut(numbers: Numbers, missing: str, alternatives: tuple[Cause, ...]) -> Judgement:
    known = [
        f"{format_bytes(value)} {what}"
        for value, what in (
            (numbers.requested, "wanted"), (numbers.total, "in all"), (numbers.free, "free"), (numbers.allocated, "allocated"),
            (numbers.slack, "reserved but unallocated"),
        )
        if value is not None
    ]  # fmt: skip
    said = f" It does say: {', '.join(known)}." if known else ""
    return Judgement("unknown", "low", alternatives, (f"The message does not say {missing}, which would decide it.{said}",))


def _hopeless(numbers: Numbers, requested: int) -> Judgement | None:
    """What does not fit the card even when everything else is packed."""
    size = format_bytes(requested)
    if requested >= _GARBAGE and numbers.total is None:
        return Judgement("unknown", "high", ("capacity",), (f"{size} was asked for, which no device has: a wrong shape or length.",))
    if numbers.total is None:
        return None
    total = format_bytes(numbers.total)
    if requested > numbers.total:
        ratio = f" ({requested / numbers.total:.1f} times)" if numbers.total else ""
        reason = f"{size} asked for at once is more than the {total} of the card{ratio}."
        if numbers.free is not None and numbers.free > numbers.total + ROUNDING:
            doubt = (
                f"The driver says that {format_bytes(numbers.free)} is free, more than the card has: it may have taken its size wrongly."
            )
            return Judgement("capacity", "medium", ("unknown",), (reason, doubt))
        if requested >= _GARBAGE:
            return Judgement("capacity", "medium", ("unknown",), (reason, "No device has that much: look for a wrong shape or length."))
        return Judgement("capacity", "high", (), (reason,))
    used = numbers.live if numbers.allocated is not None else numbers.process
    if used is None or numbers.oversubscribed or used + requested <= numbers.total:
        return None
    by = "allocated" if numbers.allocated is not None else "held by this process"
    packed = f"{format_bytes(used)} {by} + {size} requested = {format_bytes(used + requested)}"
    reasons = [f"{packed}, more than the {total} of the card even if all free memory were in one piece."]
    alternatives: list[Cause] = []
    if numbers.slack is None or numbers.share(numbers.slack) >= _SMALL_SLACK:
        alternatives.append("fragmentation")
    if numbers.foreign_excess >= _FEW_OUTSIDE * numbers.total:
        alternatives.append("other_process")
        reasons.append(f"{format_bytes(numbers.foreign)} is outside this process as well, but without that it would not fit either.")
    if numbers.limit is not None:
        alternatives.append("limit")
    sure = used + requested > numbers.total + ROUNDING and numbers.allocated is not None
    return Judgement("capacity", "high" if sure else "medium", tuple(alternatives), tuple(reasons))


def _oversubscribed(numbers: Numbers, requested: int) -> Judgement | None:
    """More counted as allocated than the card has: the driver pages to the host, or pools sleep on the host and still count."""
    if not numbers.oversubscribed:
        return None
    asleep = numbers.pool > 0 or (numbers.process is not None and numbers.process <= (numbers.total or 0))
    why = (
        "pools that were put to sleep (their pages given back) still count"
        if asleep
        else "the driver has moved some of it to the host's memory, so the card is oversubscribed"
    )
    counted = f"{format_bytes(numbers.allocated)} counts as allocated on a card of {format_bytes(numbers.total)}: {why}."
    if numbers.slack is not None and numbers.slack >= requested:
        slack = f"{format_bytes(numbers.slack)} is reserved but unallocated, and {format_bytes(requested)} was asked for."
        if asleep:
            return Judgement("fragmentation", "low", ("unknown", "capacity"), (slack, counted))
        return Judgement("capacity", "medium", ("fragmentation",), (counted, slack))
    left = f"{format_bytes(numbers.free)} is free" if numbers.free is not None else "what is free is not printed"
    slack = f" and {format_bytes(numbers.slack)} reserved but unallocated" if numbers.slack is not None else ""
    return Judgement("capacity", "low" if asleep else "medium", ("unknown",), (counted, f"{left}{slack}."))


def _pools(numbers: Numbers, requested: int) -> Judgement | None:
    """Private pools hold what others cannot use."""
    short = requested - (numbers.free or 0)
    if numbers.pool < max(short, numbers.slack or 0) or numbers.share(numbers.pool) < _FEW_OUTSIDE:
        return None
    part = f" of {format_bytes(numbers.total)}" if numbers.total is not None else ""
    reason = f"{format_bytes(numbers.pool)}{part} lies free in private pools (CUDA graphs, MemPool), where only their owners may use it."
    said = "PyTorch prints it as 'allocated in private pools', but what it counts there are their free blocks."
    sure: Confidence = "high" if numbers.share(numbers.pool) >= 0.5 else "medium"
    return Judgement("workspace_or_comm", sure, ("capacity", "fragmentation"), (reason, said))


def _incomplete(found: Found, numbers: Numbers, requested: int) -> Judgement | None:
    """Messages that do not print enough to compare slack with what is outside: other frameworks', cut ones, XPU's."""
    if None not in {numbers.total, numbers.free, numbers.allocated, numbers.slack}:
        return None
    size, free = format_bytes(requested), format_bytes(numbers.free)
    if numbers.slack is not None and _much_slack(numbers, requested):
        return Judgement("fragmentation", "medium", ("capacity", "other_process"), (_enough_slack(numbers, requested),))
    enough = _free_enough(found, numbers, requested)
    if enough is not None:
        return enough
    if numbers.allocated is None:
        return _without_allocated(numbers, requested)
    allocated = f"{format_bytes(numbers.allocated)} is allocated"
    if numbers.total is None:
        if numbers.free is None and found.framework in {"pytorch", "torch_npu"}:
            return _cut(numbers, "how large the card is and what is free", ("capacity", "fragmentation"))
        left = f", {free} is free" if numbers.free is not None else ""
        return Judgement("capacity", "low", ("other_process", "unknown"), (f"{allocated}{left}, and {size} more was asked for.",))
    part = numbers.share(numbers.allocated)
    allocated += f" of {format_bytes(numbers.total)} ({part:.0%})"
    if numbers.free is None:
        if part < _FULL and found.backend == "xpu" and requested >= _XPU_LARGEST:
            reason = f"{size} in one piece was refused although only {allocated}: many Level Zero drivers give no piece of 4 GiB or more."
            return Judgement("limit", "medium", ("unknown", "capacity"), (reason,))
        if part >= _FULL:
            return Judgement("capacity", "medium", ("other_process", "fragmentation"), (f"{allocated}, and {size} more was asked for.",))
        likely: tuple[Cause, ...] = ("limit", "other_process") if found.backend == "xpu" else ("other_process", "capacity")
        return _cut(numbers, "what is free on the device", likely)
    return _unsplit(found, numbers, requested, allocated)


def _without_allocated(numbers: Numbers, requested: int) -> Judgement:
    """What the driver says, and nothing of the allocator."""
    size = format_bytes(requested)
    if numbers.total is None and numbers.free is not None:
        reason = f"{size} was asked for and {format_bytes(numbers.free)} is free."
        return Judgement("capacity", "low", ("other_process", "unknown"), (reason,))
    if numbers.process is not None and numbers.share(numbers.foreign_excess) >= 0.5:
        return Judgement("other_process", "medium", ("capacity",), _who(numbers))
    if numbers.share(numbers.process) >= _FULL:
        held = f"This process holds {format_bytes(numbers.process)} of {format_bytes(numbers.total)}, and {size} more was asked for."
        return Judgement("capacity", "low", ("fragmentation", "unknown"), (held, "How much of it tensors use is not printed."))
    return _cut(numbers, "how much this process has allocated", ("capacity", "other_process"))


def _unsplit(found: Found, numbers: Numbers, requested: int, allocated: str) -> Judgement:
    """Without what is reserved: the gap is slack, or outside, or both."""
    gap, own = numbers.outside or 0, (numbers.process or 0) - (numbers.allocated or 0)
    if numbers.process is None:
        if gap <= numbers.allowance or numbers.share(numbers.allocated) >= _FULL:
            tail = f"{format_bytes(numbers.free)} is free, and {format_bytes(requested)} more was asked for"
            sure: Confidence = "high" if gap <= numbers.allowance and numbers.share(numbers.allocated) >= _FULL else "medium"
            return Judgement("capacity", sure, ("fragmentation", "other_process"), (f"{allocated}, {tail}.",))
        if numbers.share(gap - numbers.allowance) >= _MOST_OF_CARD:
            return _mostly_foreign(numbers, gap, allocated)
        what = f"how much is reserved: {format_bytes(gap)} may be free pieces of this process or belong to others"
        return _cut(numbers, what, ("other_process", "fragmentation"))
    if numbers.share(numbers.foreign_excess) >= _FEW_OUTSIDE and numbers.foreign_excess > own - numbers.allowance:
        return Judgement("other_process", "medium", ("fragmentation", "capacity"), _who(numbers))
    if own - numbers.allowance >= requested and numbers.share(own) >= _FEW_OUTSIDE:
        reason = f"This process holds {format_bytes(numbers.process)}, and {allocated}: {format_bytes(own)} is unused, or libraries'."
        return Judgement("fragmentation", "low", ("workspace_or_comm", "capacity"), (reason,))
    return _full(found, numbers, requested)


def _mostly_foreign(numbers: Numbers, gap: int, allocated: str) -> Judgement:
    """Nearly the whole card is taken, and next to nothing of it by tensors of this process."""
    reasons = [f"{format_bytes(gap)} of {format_bytes(numbers.total)} is taken, but only {allocated} here."]
    listed = numbers.others or numbers.listed
    if listed:
        reasons.append("Processes on the device: " + ", ".join(f"{pid} with {format_bytes(size)}" for pid, size in listed) + ".")
    return Judgement("other_process", "medium" if listed else "low", ("fragmentation", "capacity"), tuple(reasons))


def _much_slack(numbers: Numbers, requested: int) -> bool:
    slack = numbers.slack or 0
    reference = numbers.total if numbers.total is not None else numbers.reserved
    return slack >= requested and slack >= _SMALL_SLACK * (reference or 0)


def _enough_slack(numbers: Numbers, requested: int) -> str:
    times = f" ({numbers.slack / requested:.1f} times)" if numbers.slack and requested else ""
    return (
        f"{format_bytes(numbers.slack)} is reserved but unallocated, more than the {format_bytes(requested)} that was asked for{times}: "
        "no single piece of it was large enough."
    )


def _slack(found: Found, numbers: Numbers, requested: int) -> Judgement | None:
    """Enough lies unused in this allocator, alone or with what is free, and it is not small beside what others hold."""
    slack, free, size = numbers.slack or 0, numbers.free or 0, format_bytes(requested)
    plenty = free >= 2 * requested and numbers.share(free) >= _PLENTY
    if plenty or slack < _SLACK_TO_FOREIGN * numbers.foreign_excess:
        return None
    rivals: list[Cause] = []
    if numbers.share(numbers.foreign_excess) >= _FEW_OUTSIDE / 2:
        rivals.append("workspace_or_comm" if _is_ones_own(found, numbers) else "other_process")
    if _much_slack(numbers, requested):
        reasons = [_enough_slack(numbers, requested)]
        if rivals:
            reasons.append(f"Beside that, {_outside_words(numbers)}.")
        if _driver_has_it(numbers, requested):
            reasons.append(f"{format_bytes(free)} is free as well, so a limit or the driver's own need may have played a part.")
            rivals.append("unknown")
        sure = not rivals and slack >= 1.2 * requested and numbers.share(slack) >= 2 * _SMALL_SLACK
        return Judgement("fragmentation", "high" if sure else "medium", (*rivals, "capacity"), tuple(reasons))
    if free < requested and free + slack >= _JUST_OVER * requested and numbers.share(slack) >= _SMALL_SLACK:
        both, live = f"{format_bytes(free)} free + {format_bytes(slack)} reserved but unallocated", format_bytes(numbers.live)
        clear = slack >= requested / 2 and free + slack >= 1.2 * requested
        reasons = [
            f"{both} = {format_bytes(free + slack)}, enough for the {size} asked for if it were in one piece.",
            f"Packed, {live} allocated + {size} stays within {format_bytes(numbers.total)}.",
        ]
        if not clear:
            reasons.append("That is close: a slightly smaller request is as good a remedy.")
        return Judgement("fragmentation", "medium" if clear else "low", ("capacity", *rivals), tuple(reasons))
    return None


def _free_enough(found: Found, numbers: Numbers, requested: int) -> Judgement | None:
    """The driver says that it has enough, and refused."""
    if not _driver_has_it(numbers, requested):
        return None
    size, free = format_bytes(requested), format_bytes(numbers.free)
    if numbers.share(requested) >= _WHOLE_CARD:
        reason = f"{size} is {numbers.share(requested):.0%} of the card in one request; {free} is free, but no driver gives out all of it."
        return Judgement("capacity", "medium", ("unknown", "limit"), (reason,))
    if found.backend == "xpu" and requested >= _XPU_LARGEST:
        reason = f"{size} in one piece was refused although {free} is free: many Level Zero drivers give no piece of 4 GiB or more."
        return Judgement("limit", "medium", ("unknown", "capacity"), (reason,))
    fraction = implied_limit(numbers, requested)
    if fraction is not None:
        held = format_bytes(numbers.reserved)
        reason = (
            f"{held} reserved + {size} requested just exceeds {fraction}% of the card, while {free} is free: a limit that is not printed."
        )
        return Judgement("limit", "low", ("unknown", "fragmentation"), (reason,))
    reason = f"{free} is free, which is more than the {size} asked for, and still the driver refused."
    why = (
        "It may keep memory for itself, lack one piece of that size, or have been short at that moment; "
        "or a limit applies that is not printed (some releases of PyTorch 2 leave it out)."
    )
    return Judgement("unknown", "low", ("capacity", "limit", "fragmentation"), (reason, why))


def _driver_has_it(numbers: Numbers, requested: int) -> bool:
    """Whether more is free than was asked for, and more than the last drops of a full card."""
    if numbers.free is None or numbers.free < requested:
        return False
    return numbers.total is None or numbers.free >= max(_LAST_DROPS * numbers.total, _LAST_DROPS_BYTES)


def _is_ones_own(found: Found, numbers: Numbers) -> bool:
    """Whether what is outside may well be this process' own: told by the driver, or usual for a training job on Ascend."""
    if numbers.process is not None and numbers.reserved is not None:
        return (numbers.own_outside or 0) > (numbers.foreign or 0)
    return found.backend == "npu" and numbers.share(numbers.reserved) >= 0.5 and numbers.share(numbers.outside) <= 0.3


def _outside_words(numbers: Numbers) -> str:
    return f"{format_bytes(numbers.outside)} is neither free nor reserved by this allocator"


def _outside(found: Found, numbers: Numbers, requested: int) -> Judgement | None:
    """What is missing lies outside this allocator: with other processes, or with libraries of this one."""
    short = f"{format_bytes(numbers.free)} is free, {format_bytes(requested)} was asked for."
    own_excess = (numbers.own_outside or 0) - numbers.allowance
    if numbers.share(own_excess) >= _FEW_OUTSIDE and own_excess > numbers.foreign_excess:
        reason = (
            f"This process holds {format_bytes(numbers.process)}, but its allocator only {format_bytes(numbers.reserved)}: "
            f"{format_bytes(numbers.own_outside)} is taken by libraries (communication, workspaces, graphs), where about "
            f"{format_bytes(numbers.allowance)} would be usual."
        )
        return Judgement("workspace_or_comm", "medium", ("capacity", "fragmentation"), (reason, short))
    if numbers.share(numbers.foreign_excess) < _FEW_OUTSIDE:
        return None
    if numbers.process is None and not numbers.listed and _is_ones_own(found, numbers):
        reason = (
            f"{_outside_words(numbers)}, though this process holds {format_bytes(numbers.reserved)} of the card itself: where only one job "
            "runs on the device, that is HCCL's buffers (2 x 200 MB a communicator by default) and operator workspaces."
        )
        return Judgement("workspace_or_comm", "low", ("other_process", "fragmentation"), (reason, short))
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
    if numbers.process is not None:
        foreign = format_bytes(max(numbers.foreign or 0, others))
        listed = f", of which {format_bytes(others)} in {len(numbers.others)} listed" if others else ""
        this = f"this one holds {format_bytes(numbers.process)}"
        return (f"Other processes hold {foreign} of {format_bytes(numbers.total)}{listed}; {this}.",)
    reason = (
        f"{format_bytes(numbers.total)} total - {format_bytes(numbers.free)} free - {format_bytes(numbers.reserved)} reserved here = "
        f"{format_bytes(numbers.outside)} outside this allocator, where one process' context and libraries take "
        f"{format_bytes(numbers.allowance)} at most."
    )
    if numbers.strangers:
        pid, size = max(numbers.strangers, key=lambda entry: entry[1])
        likely = numbers.likely_this
        taken = f"; process {likely[0]} with {format_bytes(likely[1])} is taken to be this one" if likely else ""
        return (reason, f"Process {pid} holds {format_bytes(size)}{taken}.")
    return (reason,)


def _full(found: Found, numbers: Numbers, requested: int) -> Judgement:
    """Nothing but live tensors is left to explain it."""
    part = numbers.share(numbers.live)
    used, free = f"{format_bytes(numbers.live)} of {format_bytes(numbers.total)} ({part:.0%})", format_bytes(numbers.free)
    reasons = [f"{used} is in use by tensors, and {free} is free; {format_bytes(requested)} more was asked for."]
    alternatives: list[Cause] = []
    if numbers.slack is not None:
        reasons.append(f"Only {format_bytes(numbers.slack)} ({numbers.share(numbers.slack):.1%} of the card) is reserved but unallocated.")
        if numbers.slack >= requested:
            alternatives.append("fragmentation")
    if (numbers.foreign or 0) >= max(requested - (numbers.free or 0), 1) and (numbers.process is None or numbers.others):
        alternatives.append("workspace_or_comm" if _is_ones_own(found, numbers) else "other_process")
        reasons.append(f"{_outside_words(numbers)} (context, libraries, perhaps other programs), more than what is missing.")
    if "workspace_or_comm" not in alternatives and (numbers.own_outside or 0) > 2 * numbers.allowance:
        alternatives.append("workspace_or_comm")
        reasons.append(f"This process takes {format_bytes(numbers.own_outside)} outside its allocator (libraries, communication, graphs).")
    if numbers.limit is not None:
        alternatives.append("limit")
    sure: Confidence = "high" if part >= 0.85 and not alternatives else "medium" if part >= 0.5 else "low"
    return Judgement("capacity", sure, tuple(alternatives), tuple(reasons))
