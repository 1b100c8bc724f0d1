"""The cause of a failed allocation that a trace contains.

A message does not show the free blocks, the tensors between them, and their pools and streams; the trace does. A trace
does not show memory outside the allocator, so those numbers come from the message (the whole device, a limit, other
processes). The texts are in ``messages/cause.json``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from memdiag import vocabulary
from memdiag.analyzers.support.failures import Failure
from memdiag.analyzers.support.moments import DeviceMoment
from memdiag.analyzers.support.places import group_name
from memdiag.analyzers.support.sites import by_category, by_place
from memdiag.diagnosis.classifier import classify
from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.thresholds import ALLOWANCE, ALLOWANCES, HALF
from memdiag.oom.ledger import account
from memdiag.oom.model import Found
from memdiag.results.oom import Confidence, Judgement, LedgerEntry, Message
from memdiag.text import Phrase, joined, phrase
from memdiag.units import format_bytes

NUM_PLACES = 3
# Parts of a ledger that the trace divides further: those that add up to the reserved memory.
_SPLIT = frozenset({"oom_ledger.allocated.by", "oom_ledger.unallocated"})


def facts_of(failure: Failure, message: Message | None = None) -> Facts:
    """Returns the facts of a failure: those counted in the trace, and those that only a message prints.

    Args:
        failure: The request; its free bytes must be known.
        message: The message of the same failure; None or one built from the trace (dialect "trace") if there is none.
    """
    backend = failure.view.trace.backend or "cuda"
    is_printed = message is not None and message.dialect != "trace"
    printed = (
        Facts.from_fields(message.fields, message.backend, message.framework)
        if message and is_printed
        else Facts(backend=backend)
    )
    allocated, active = failure.usage["allocated"], failure.active_bytes
    pool = 0 if failure.is_private else failure.private_bytes(free=True)
    left, total = failure.here.device_free_bytes, failure.device.capacity_bytes
    recorded = failure.view.trace.recorded
    if not is_printed and total and left is not None and recorded is not None and recorded.ended.phantom_device:
        printed = replace(printed, process=total - left)  # no other process uses a simulated device
    return replace(
        printed,
        request=failure.request_bytes,
        requested=failure.segment_bytes,
        total=printed.total if printed.total is not None else total,
        free=left if left is not None else printed.free,
        allocated=max(allocated if allocated >= 0 else active, 0) + pool,
        reserved=failure.usage["reserved"] if failure.usage["reserved"] >= 0 else None,
        slack=max(failure.free_bytes - pool, 0),
        pool=pool,
        pending=max(active - allocated, 0) if allocated >= 0 else 0,
        private=failure.private_bytes(),
        fits=failure.fit.fits if failure.fit is not None else None,
        allowance=ALLOWANCES.get(printed.backend, ALLOWANCE),
        is_printed=is_printed,
        is_counted=True,
    )


def classified(here: DeviceMoment) -> tuple[Facts, Judgement]:
    """Returns the facts of the request that failed at a moment, and the resulting cause."""
    facts = facts_of(Failure(here, here.request_bytes, here.group))
    return facts, classify(facts)


def cause(failure: Failure, message: Message) -> Judgement:
    """Returns the cause of a failure; ``message`` is the printed one, or the one built from the trace."""
    if failure.free_bytes < 0:
        return replace(message.judgement, reasons=(*message.judgement.reasons, phrase("cause.not-counted")))
    facts = facts_of(failure, message)
    judgement = classify(facts)
    confidence: Confidence = "medium" if judgement.confidence == "high" and not failure.exact else judgement.confidence
    reasons = (
        *_decisive(failure, facts, judgement),
        *_pieces(failure, facts),
        *_whereabouts(failure),
        *_live(failure),
        *_retries(failure),
    )
    return replace(judgement, confidence=confidence, reasons=reasons)


def _decisive(failure: Failure, facts: Facts, judgement: Judgement) -> Iterator[str]:
    """Yields the arithmetic behind a verdict, with the numbers of the trace."""
    wanted, left = format_bytes(facts.requested), format_bytes(facts.free)
    reserved, within = format_bytes(facts.reserved), (_in_blocks(facts),) if facts.missing <= 0 else (_short(facts),)
    match judgement.rule:
        case "larger":
            yield judgement.reasons[0]
        case "limit":
            yield from judgement.reasons
            yield from within if facts.missing <= 0 and (facts.slack or 0) < facts.needed else ()
        case "refused":
            values = {"left": left, "wanted": wanted}
            yield (
                phrase("cause.refused.driver", **values)
                if facts.is_printed
                else phrase("cause.refused.limit", **values)
            )
            yield from within if facts.missing <= 0 else ()
        case "pools":
            yield judgement.reasons[0]  # the second explains the printed number
        case "outside":
            yield from judgement.reasons[:-1]  # the last one compares printed numbers
            yield from within
        case "slack" | "both":
            if facts.fits and failure.fit is not None:
                largest = format_bytes(failure.fit.largest_free_bytes)
                yield phrase("cause.block", enough=_enough(facts), largest=largest)
            else:
                yield _in_blocks(facts)
        case "full" if facts.missing <= 0:
            yield phrase("cause.scarce", bytes=format_bytes(-facts.missing))
            yield from within
        case "packed" | "full":
            yield from within
        case _:
            yield from judgement.reasons
            yield from within
    if judgement.verdict == "capacity" and facts.private >= HALF * (facts.reserved or 0) > 0:
        yield phrase("cause.private", bytes=format_bytes(facts.private), reserved=reserved)


def _enough(facts: Facts) -> Phrase:
    """Returns the statement that the free bytes are enough."""
    free, asked = format_bytes((facts.slack or 0) + facts.pool), format_bytes(facts.needed)
    if (facts.slack or 0) >= facts.needed:
        return phrase("cause.enough", free=free, asked=asked)
    return phrase("cause.enough.device", free=free, left=format_bytes(facts.free), asked=asked)


def _in_blocks(facts: Facts) -> Phrase:
    return phrase("cause.blocks", enough=_enough(facts))


def _short(facts: Facts) -> Phrase:
    """Returns the statement that the free bytes are too few."""
    sizes = {"free": (facts.slack or 0) + facts.pool, "asked": facts.needed, "missing": facts.missing - facts.pool}
    values = {name: format_bytes(size) for name, size in sizes.items()}
    if facts.free is None:
        return phrase("cause.one-block", **values)
    return phrase("cause.one-block.device", **values, left=format_bytes(facts.free))


def _pieces(failure: Failure, facts: Facts) -> Iterator[str]:
    """Yields the free blocks and the live tensors between them."""
    fit = failure.fit
    free = failure.free_bytes
    if fit is None or not free or fit.fits:
        return
    where = group_name(failure.device, failure.group)
    elsewhere = free - fit.free_bytes
    if not fit.num_free:
        yield phrase("cause.free.none", count=failure.num_free, where=where)
        return
    sizes = {
        "free": format_bytes(fit.free_bytes),
        "largest": format_bytes(fit.largest_free_bytes),
        "missing": format_bytes(fit.missing_bytes),
    }
    own = phrase("cause.free", **sizes, where=where, count=fit.num_free)
    others = phrase("cause.free.elsewhere", bytes=format_bytes(elsewhere), count=failure.num_free - fit.num_free)
    yield joined([own, others]) if elsewhere > 0 else own
    if facts.missing > facts.pool:
        return
    if not fit.range_bytes:
        yield phrase("cause.no-segment")
        return
    if fit.between_bytes >= facts.needed:
        yield phrase("cause.no-range", asked=format_bytes(facts.needed))
        return
    places = joined([place.label for place in by_place(failure.view, fit.between)[:NUM_PLACES]], ", ")
    between, length = format_bytes(fit.between_bytes), format_bytes(fit.range_bytes)
    yield phrase("cause.between", count=len(fit.between), bytes=between, range=length, places=places)


def _whereabouts(failure: Failure) -> Iterator[str]:
    """Yields the account of reserved memory."""
    parts = [(what, size) for what, size in _parts(failure) if size]
    if failure.usage["reserved"] >= 0 and parts:
        listed = joined(
            [phrase("cause.account.part", bytes=format_bytes(size), what=what) for what, size in parts], " + "
        )
        yield phrase("cause.account", reserved=format_bytes(failure.usage["reserved"]), parts=listed)


def _parts(failure: Failure) -> Iterator[tuple[Phrase, int]]:
    """Yields the known parts of reserved memory, which add up to it."""
    reserved, allocated, requested = (failure.usage[name] for name in ("reserved", "allocated", "requested"))
    active = failure.active_bytes
    if min(reserved, allocated) < 0:
        return
    if requested >= 0:
        yield phrase("cause.account.part.requested"), requested
        yield phrase("cause.account.part.rounding"), allocated - requested
    else:
        yield phrase("cause.account.part.allocated"), allocated
    yield phrase("cause.account.part.pending"), active - allocated
    if failure.split is None:
        yield phrase("cause.account.part.free"), reserved - active
        return
    yield phrase("cause.account.part.stranded"), failure.split.stranded
    yield phrase("cause.account.part.foreign"), failure.split.foreign
    yield phrase("cause.account.part.cache"), failure.split.cache


def _live(failure: Failure) -> Iterator[str]:
    """Yields the live tensors by category and by call site."""
    view, rows = failure.view, failure.view.live
    total = int(failure.device.tensors.block_bytes[rows].sum())
    if not total:
        return
    held = {name: size for name, size in by_category(view, rows).items() if size >= 0.01 * total}
    values = {"bytes": format_bytes(total), "count": len(rows)}
    kinds = [
        phrase("cause.live.kind", kind=vocabulary.name("category", name), share=f"{size / total:.0%}")
        for name, size in held.items()
    ]
    is_known = any(name != "unknown" for name in held)
    yield (
        phrase("cause.live.kinds", **values, kinds=joined(kinds, ", ")) if is_known else phrase("cause.live", **values)
    )
    places = by_place(view, rows)[:NUM_PLACES]
    each = [phrase("cause.most.place", bytes=format_bytes(place.bytes), place=place.label) for place in places]
    yield phrase("cause.most", places=joined(each, "; "))


def _retries(failure: Failure) -> Iterator[str]:
    references = failure.device.references
    retried = int(np.sum(references.retried & ~references.failed & (references.at_event < failure.here.at)))
    if retried:
        yield phrase("cause.retries", count=retried)


def ledger(failure: Failure, message: Message) -> tuple[LedgerEntry, ...]:
    """Returns the account of the device: the parts of reserved memory from the trace, and the rest from the message."""
    reserved, allocated = failure.usage["reserved"], failure.usage["allocated"]
    parts = [LedgerEntry(what, size, "this process", "computed") for what, size in _parts(failure) if size]
    if not parts:
        return message.ledger
    facts = facts_of(failure, message)
    sizes = {
        "allocated": allocated,
        "unallocated": reserved - allocated,
        "reserved": reserved,
        "free": facts.free,
        "total": facts.total,
    }
    fields = {
        name: value for name, value in message.fields.items() if name not in {"private_pool_bytes", "cached_bytes"}
    }
    fields |= {f"{name}_bytes": size for name, size in sizes.items() if size is not None}
    entries = account(Found(0, 0, message.dialect, message.framework, message.backend, fields))
    own = [entry for entry in entries if isinstance(entry.what, Phrase) and entry.what.key in _SPLIT]
    if sum(entry.bytes or 0 for entry in own) != reserved:  # part of it is not on the device
        return entries
    return (*parts, *(entry for entry in entries if entry not in own))
