"""The one classifier of failures: it decides why a request did not fit.

If ``allocated + requested`` fits the device, the missing memory is either reserved here and unused, or outside this
allocator. The rules therefore first test whether the request would fit without fragmentation, then whether a limit was
reached, and then compare the two. ``Judgement.rule`` names the rule that decided. A trace's free blocks increase the
confidence of a verdict; they do not change which rules apply.
"""

from __future__ import annotations

from memdiag.diagnosis import thresholds
from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.incomplete import idle, incomplete, lacking
from memdiag.diagnosis.limits import capped, driver_has_it, free_enough, unseen_limit, unusable
from memdiag.diagnosis.live import full
from memdiag.diagnosis.outside import is_ones_own, outside
from memdiag.results.oom import Cause, Confidence, Judgement
from memdiag.text import phrase
from memdiag.units import format_bytes


def classify(facts: Facts) -> Judgement:
    """Returns the cause of a failure of an allocator."""
    if facts.requested is None:
        return idle(facts) or lacking(facts, phrase("cause.missing.request"), ("capacity", "fragmentation"))
    return (
        unusable(facts)
        or _hopeless(facts)
        or _oversubscribed(facts)
        or capped(facts)
        or unseen_limit(facts)
        or _pools(facts)
        or incomplete(facts)
        or _slack(facts)
        or free_enough(facts)
        or outside(facts)
        or full(facts)
    )


def _hopeless(facts: Facts) -> Judgement | None:
    """Judges a request that does not fit the device even without fragmentation."""
    requested = facts.needed
    size = format_bytes(requested)
    if requested >= thresholds.GARBAGE and facts.total is None:
        return Judgement("unknown", "high", ("capacity",), (phrase("cause.absurd", size=size),), "larger")
    if facts.total is None:
        return None
    total = format_bytes(facts.total)
    if requested > facts.total:
        times = requested / max(facts.total, 1)
        reason = phrase("cause.larger", size=size, total=total, times=f"{times:.1f}")
        if times < thresholds.SLIGHTLY:
            reason = phrase("cause.larger.slightly", size=size, total=total)
        if facts.free is not None and facts.free > facts.total + thresholds.ROUNDING:
            doubt = phrase("cause.larger.free", free=format_bytes(facts.free))
            return Judgement("capacity", "medium", ("unknown",), (reason, doubt), "larger")
        if requested >= thresholds.GARBAGE:
            return Judgement("capacity", "medium", ("unknown",), (reason, phrase("cause.larger.absurd")), "larger")
        return Judgement("capacity", "high", (), (reason,), "larger")
    used = facts.live if facts.allocated is not None else facts.process
    if used is None or facts.oversubscribed or used + requested <= facts.total:
        return None
    sizes = {"used": format_bytes(used), "size": size, "sum": format_bytes(used + requested), "total": total}
    is_allocated = facts.allocated is not None
    reasons = [phrase("cause.packed", **sizes) if is_allocated else phrase("cause.packed.process", **sizes)]
    alternatives: list[Cause] = []
    if facts.slack is None or facts.share(facts.slack) >= thresholds.SMALL_SLACK:
        alternatives.append("fragmentation")
    if facts.foreign_excess >= thresholds.FEW_OUTSIDE * facts.total:
        alternatives.append("other_process")
        reasons.append(phrase("cause.packed.foreign", foreign=format_bytes(facts.foreign)))
    if facts.limit is not None:
        alternatives.append("limit")
    is_sure = used + requested > facts.total + facts.error and is_allocated
    return Judgement("capacity", "high" if is_sure else "medium", tuple(alternatives), tuple(reasons), "packed")


def _oversubscribed(facts: Facts) -> Judgement | None:
    """Judges a failure with more allocated bytes than the device has: paged to the host, or in sleeping pools."""
    if not facts.oversubscribed:
        return None
    asleep = facts.pool > 0 or (facts.process is not None and facts.process <= (facts.total or 0))
    sizes = {"allocated": format_bytes(facts.allocated), "total": format_bytes(facts.total)}
    counted = phrase("cause.asleep", **sizes) if asleep else phrase("cause.paged", **sizes)
    if facts.slack is not None and facts.slack >= facts.needed:
        slack = phrase("cause.slack.request", slack=format_bytes(facts.slack), size=format_bytes(facts.needed))
        if asleep:
            return Judgement("fragmentation", "low", ("unknown", "capacity"), (slack, counted), "oversubscribed")
        return Judgement("capacity", "medium", ("fragmentation",), (counted, slack), "oversubscribed")
    sizes = {"free": format_bytes(facts.free), "slack": format_bytes(facts.slack)}
    left = phrase("cause.left", **sizes) if facts.slack is not None else phrase("cause.left.free", free=sizes["free"])
    if facts.free is None:
        left = phrase("cause.left.unknown")
    return Judgement("capacity", "low" if asleep else "medium", ("unknown",), (counted, left), "oversubscribed")


def _pools(facts: Facts) -> Judgement | None:
    """Judges a failure for which private pools hold the missing memory.

    A message does not name the pool of the request, so only a trace is conclusive.
    """
    if facts.is_in_pieces or facts.missing > facts.pool or facts.share(facts.pool) < thresholds.FEW_OUTSIDE:
        return None
    reasons = (phrase("cause.pools", pool=format_bytes(facts.pool)), phrase("cause.pools.printed"))
    is_sure = facts.is_counted and facts.missing > 0 and facts.total is not None
    return Judgement(
        "workspace_or_comm", "high" if is_sure else "medium", ("capacity", "fragmentation"), reasons, "pools"
    )


def _slack(facts: Facts) -> Judgement | None:
    """Judges a failure with enough slack, alone or with the free memory, compared with other processes."""
    slack, free, requested = facts.slack or 0, facts.free or 0, facts.needed
    plenty = free >= 2 * requested and facts.share(free) >= thresholds.PLENTY
    if plenty or slack < thresholds.SLACK_TO_FOREIGN * facts.foreign_excess or not facts.is_in_pieces:
        return None
    rivals: list[Cause] = []
    if facts.share(facts.foreign_excess) >= thresholds.FEW_OUTSIDE / 2:
        rivals.append("workspace_or_comm" if is_ones_own(facts) else "other_process")
    if facts.has_much_slack:
        reasons = [phrase("cause.slack", slack=format_bytes(slack), size=format_bytes(requested))]
        if rivals:
            reasons.append(phrase("cause.outside", outside=format_bytes(facts.outside)))
        if driver_has_it(facts):
            reasons.append(phrase("cause.slack.free", free=format_bytes(free)))
            rivals.append("unknown")
        is_clear = slack >= thresholds.CLEAR * requested and facts.share(slack) >= 2 * thresholds.SMALL_SLACK
        if facts.is_counted:
            # if the size of the device is unknown, other processes may hold the rest:
            # slack must serve the whole segment
            is_clear = facts.total is not None or slack >= (facts.requested or 0)
        is_sure = not rivals and is_clear and not facts.fits
        return Judgement(
            "fragmentation", "high" if is_sure else "medium", (*rivals, "capacity"), tuple(reasons), "slack"
        )
    sizes = {"free": format_bytes(free), "slack": format_bytes(slack), "sum": format_bytes(free + slack)}
    size, live, total = format_bytes(requested), format_bytes(facts.live), format_bytes(facts.total)
    is_clear = slack >= requested / 2 and free + slack >= thresholds.CLEAR * requested
    reasons = [
        phrase("cause.both", size=size, **sizes),
        phrase("cause.both.packed", live=live, size=size, total=total),
    ]
    if not is_clear:
        reasons.append(phrase("cause.both.close"))
    confidence: Confidence = "medium" if is_clear or facts.is_counted else "low"
    return Judgement("fragmentation", confidence, ("capacity", *rivals), tuple(reasons), "both")
