"""The cause of a failed allocation that a trace contains.

A message does not show the free blocks, the tensors between them, and their pools and streams; the trace does. A trace does not show
memory outside the allocator, so those numbers come from the message (the whole device, a limit, other processes). The texts are in
``messages/failure.json``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from memdiag import vocabulary
from memdiag.analyzers.support.failures import Failure
from memdiag.analyzers.support.moments import DUST
from memdiag.analyzers.support.places import group_name
from memdiag.analyzers.support.sites import by_category, by_place
from memdiag.oom.ledger import account
from memdiag.oom.model import Found
from memdiag.results.oom import Cause, Confidence, Judgement, LedgerEntry, Message
from memdiag.text import Phrase, joined, phrase
from memdiag.units import format_bytes

# Memory that perfect packing could use, as a share of the device (of reserved memory if that is unknown). Below SCARCE better packing helps
# this request but hardly the next one; below DUST the device is simply full.
SCARCE = 0.1
HALF = 0.5  # of the device, or of reserved memory: its owner is the cause
SET_ASIDE = 0.15  # of reserved memory free in private pools: more than any run has
NUM_PLACES = 3
_ELSEWHERE: tuple[Cause, ...] = ("other_process", "workspace_or_comm")
# Parts of a ledger that the trace splits further: those that add up to the reserved memory.
_SPLIT = frozenset({"oom_ledger.allocated.by", "oom_ledger.unallocated"})


@dataclass(frozen=True)
class _Account:
    """The numbers that decide. None: unknown."""

    request: int
    free: int  # inside the allocator
    left: int | None  # on the device
    segment: int
    total: int | None
    limit: int | None
    outside: int | None  # held by neither the allocator nor nobody

    @classmethod
    def of(cls, failure: Failure, message: Message) -> _Account:
        fields, device = message.fields, failure.device
        total, limit, left = (_size(fields.get(name)) for name in ("total_bytes", "limit_bytes", "free_bytes"))
        total = total if total is not None else device.capacity_bytes
        left = left if failure.here.device_free_bytes is None else failure.here.device_free_bytes
        reserved = failure.usage["reserved"]
        outside = max(total - left - reserved, 0) if total is not None and left is not None and reserved >= 0 else None
        return cls(failure.request_bytes, max(failure.free_bytes, 0), left, failure.segment_bytes, total, limit, outside)

    @property
    def was_refused(self) -> bool:
        """Returns True if the device had room for the whole segment, so that a limit refused it."""
        return self.left is not None and self.left >= self.segment

    @property
    def is_elsewhere(self) -> bool:
        """Returns True if most of the device is neither free nor reserved by this allocator."""
        return self.total is not None and self.outside is not None and self.outside >= HALF * self.total

    @property
    def usable(self) -> int:
        """Bytes that would serve the request, were they in one piece."""
        return self.free + (0 if self.was_refused else self.left or 0)

    @property
    def missing(self) -> int:
        """Bytes short, even in one piece."""
        return self.request - self.usable


def cause(failure: Failure, message: Message) -> Judgement:
    """Returns what caused a failure; ``message`` is the printed one, or the one made from the trace."""
    if failure.free_bytes < 0:
        return replace(message.judgement, reasons=(*message.judgement.reasons, phrase("failure.unknown")))
    known = _Account.of(failure, message)
    verdict, alternatives, sure, decisive = _decide(failure, known, message)
    confidence: Confidence = "medium" if not failure.exact or not sure else "high"
    reasons = (*decisive, *_pieces(failure, known), *_whereabouts(failure), *_live(failure), *_retries(failure))
    return Judgement(verdict, confidence, tuple(dict.fromkeys(other for other in alternatives if other != verdict)), reasons)


_Decision = tuple[Cause, tuple[Cause, ...], bool, tuple[str, ...]]


def _decide(failure: Failure, known: _Account, message: Message) -> _Decision:
    """Returns the cause, what else it may be, whether the numbers leave no doubt, and the reason."""
    asked = format_bytes(known.request)
    if known.total is not None and known.request > known.total:
        return "capacity", (), True, (phrase("failure.device", asked=asked, total=format_bytes(known.total)),)
    in_pieces: tuple[Cause, ...] = ("fragmentation",) if known.missing <= 0 else ()
    if known.was_refused:
        return _refused(failure, known, message, in_pieces)
    share = known.usable / max(known.total or failure.usage["reserved"], 1)
    if known.missing > 0 or (known.is_elsewhere and (share < SCARCE or message.judgement.verdict in _ELSEWHERE)):
        return _short(failure, known, message, in_pieces)
    private = 0 if failure.is_private else failure.private_bytes(free=True)
    if known.missing + private > 0 and private >= SET_ASIDE * failure.usage["reserved"]:
        text = phrase("failure.private.free", bytes=format_bytes(private))
        return "workspace_or_comm", ("fragmentation", "capacity"), True, (text,)
    if failure.fit is not None and failure.fit.fits:
        text = phrase("failure.block", enough=_enough(known), largest=format_bytes(failure.fit.largest_free_bytes))
        return "fragmentation", ("unknown",), False, (text,)
    others: tuple[Cause, ...] = ("other_process",) if known.is_elsewhere else ()
    text = _in_blocks(known)
    if share >= SCARCE:
        return "fragmentation", others, True, (text,)
    scarce = phrase("failure.scarce", bytes=format_bytes(-known.missing))
    if share < DUST:
        return "capacity", ("fragmentation",), False, (scarce, text)
    return "fragmentation", ("capacity",), known.free >= known.request, (text, scarce)


def _enough(known: _Account) -> Phrase:
    """Returns the statement that the free bytes are enough."""
    free, asked = format_bytes(known.free), format_bytes(known.request)
    if known.free >= known.request:
        return phrase("failure.enough", free=free, asked=asked)
    return phrase("failure.enough.device", free=free, left=format_bytes(known.left), asked=asked)


def _in_blocks(known: _Account) -> Phrase:
    return phrase("failure.blocks", enough=_enough(known))


def _refused(failure: Failure, known: _Account, message: Message, in_pieces: tuple[Cause, ...]) -> _Decision:
    """The device had room for the whole segment."""
    reserved, left, wanted = failure.usage["reserved"], format_bytes(known.left), format_bytes(known.segment)
    within = (_in_blocks(known),) if in_pieces else ()
    if known.limit is not None and reserved + known.segment > known.limit:
        values = {"reserved": format_bytes(reserved), "wanted": wanted, "limit": format_bytes(known.limit), "left": left}
        return "limit", (*in_pieces, "capacity"), True, (phrase("failure.limit", **values), *within)
    if message.dialect != "trace" and message.backend in {"cuda", "hip"}:  # there a limit would have been printed
        reason = phrase("failure.refused.driver", left=left, wanted=wanted)
        return message.judgement.verdict, (*in_pieces, "limit", *message.judgement.alternatives), False, (reason, *within)
    return "limit", (*in_pieces, "unknown"), False, (phrase("failure.refused.limit", left=left, wanted=wanted), *within)


def _short(failure: Failure, known: _Account, message: Message, in_pieces: tuple[Cause, ...]) -> _Decision:
    """The free bytes are too few, or most of the device is somebody else's."""
    values = {"free": format_bytes(known.free), "asked": format_bytes(known.request), "missing": format_bytes(known.missing)}
    short = phrase("failure.short", **values)
    if known.left is not None:
        short = phrase("failure.short.device", **values, left=format_bytes(known.left))
    reasons = [_in_blocks(known) if in_pieces else short]
    printed, reserved = message.judgement.verdict, failure.usage["reserved"]
    # Who has it where it is not this allocator, only the message tells.
    others_have_it = known.outside is not None and known.outside >= known.missing
    if others_have_it and (known.is_elsewhere or printed in _ELSEWHERE):
        who: Cause = printed if printed in _ELSEWHERE else "other_process"
        sizes = {"outside": format_bytes(known.outside), "total": format_bytes(known.total), "reserved": format_bytes(reserved)}
        reasons.insert(0, phrase("failure.outside", **sizes))
        rivals = tuple(other for other in _ELSEWHERE if other != who)
        return who, (*in_pieces, *rivals, "capacity"), known.is_elsewhere and not in_pieces, tuple(reasons)
    private = failure.private_bytes()
    if private >= HALF * reserved > 0:
        reasons.append(phrase("failure.private", bytes=format_bytes(private), reserved=format_bytes(reserved)))
        return "workspace_or_comm", ("capacity",), False, tuple(reasons)
    return "capacity", (), known.left is not None, tuple(reasons)


def _pieces(failure: Failure, known: _Account) -> Iterator[str]:
    """Yields the free blocks and the live tensors between them."""
    fit = failure.fit
    if fit is None or not known.free or fit.fits:
        return
    where = group_name(failure.device, failure.group)
    elsewhere = known.free - fit.free_bytes
    if not fit.num_free:
        yield phrase("failure.free.none", count=failure.num_free, where=where)
        return
    sizes = {
        "free": format_bytes(fit.free_bytes),
        "largest": format_bytes(fit.largest_free_bytes),
        "missing": format_bytes(fit.missing_bytes),
    }
    own = phrase("failure.free", **sizes, where=where, count=fit.num_free)
    others = phrase("failure.free.elsewhere", bytes=format_bytes(elsewhere), count=failure.num_free - fit.num_free)
    yield joined([own, others]) if elsewhere > 0 else own
    if known.missing > 0:
        return
    if not fit.range_bytes:
        yield phrase("failure.no-segment")
        return
    if fit.between_bytes >= known.request:
        yield phrase("failure.no-range", asked=format_bytes(known.request))
        return
    places = joined([place.label for place in by_place(failure.view, fit.between)[:NUM_PLACES]], ", ")
    between, length = format_bytes(fit.between_bytes), format_bytes(fit.range_bytes)
    yield phrase("failure.between", count=len(fit.between), bytes=between, range=length, places=places)


def _whereabouts(failure: Failure) -> Iterator[str]:
    """Yields the account of reserved memory."""
    parts = [(what, size) for what, size in _parts(failure) if size]
    if failure.usage["reserved"] >= 0 and parts:
        listed = joined([phrase("failure.part", bytes=format_bytes(size), what=what) for what, size in parts], " + ")
        yield phrase("failure.parts", reserved=format_bytes(failure.usage["reserved"]), parts=listed)


def _parts(failure: Failure) -> Iterator[tuple[Phrase, int]]:
    """Yields the known parts of reserved memory, which add up to it."""
    reserved, allocated, requested = (failure.usage[name] for name in ("reserved", "allocated", "requested"))
    active = failure.active_bytes
    if min(reserved, allocated) < 0:
        return
    if requested >= 0:
        yield phrase("failure.part.requested"), requested
        yield phrase("failure.part.rounding"), allocated - requested
    else:
        yield phrase("failure.part.allocated"), allocated
    yield phrase("failure.part.pending"), active - allocated
    if failure.split is None:
        yield phrase("failure.part.free"), reserved - active
        return
    yield phrase("failure.part.stranded"), failure.split.stranded
    yield phrase("failure.part.foreign"), failure.split.foreign
    yield phrase("failure.part.cache"), failure.split.cache


def _live(failure: Failure) -> Iterator[str]:
    """Yields the live tensors by category and by call site."""
    view, rows = failure.view, failure.view.live
    total = int(failure.device.tensors.block_bytes[rows].sum())
    if not total:
        return
    held = {name: size for name, size in by_category(view, rows).items() if size >= 0.01 * total}
    values = {"bytes": format_bytes(total), "count": len(rows)}
    kinds = [
        phrase("failure.live.kind", kind=vocabulary.name("category", name), share=f"{size / total:.0%}") for name, size in held.items()
    ]
    is_known = any(name != "unknown" for name in held)
    yield phrase("failure.live.kinds", **values, kinds=joined(kinds, ", ")) if is_known else phrase("failure.live", **values)
    places = by_place(view, rows)[:NUM_PLACES]
    each = [phrase("failure.most.place", bytes=format_bytes(place.bytes), place=place.label) for place in places]
    yield phrase("failure.most", places=joined(each, "; "))


def _retries(failure: Failure) -> Iterator[str]:
    references = failure.device.references
    retried = int(np.sum(references.retried & ~references.failed & (references.at_event < failure.here.at)))
    if retried:
        yield phrase("failure.retries", count=retried)


def ledger(failure: Failure, message: Message) -> tuple[LedgerEntry, ...]:
    """Returns the account of the device: the parts of reserved memory from the trace, and the rest from the message."""
    reserved, allocated = failure.usage["reserved"], failure.usage["allocated"]
    parts = [LedgerEntry(what, size, "this process", "computed") for what, size in _parts(failure) if size]
    if not parts:
        return message.ledger
    known = _Account.of(failure, message)
    sizes = {"allocated": allocated, "unallocated": reserved - allocated, "reserved": reserved, "free": known.left, "total": known.total}
    fields = {name: value for name, value in message.fields.items() if name not in {"private_pool_bytes", "cached_bytes"}}
    fields |= {f"{name}_bytes": size for name, size in sizes.items() if size is not None}
    entries = account(Found(0, 0, message.dialect, message.framework, message.backend, fields))
    own = [entry for entry in entries if isinstance(entry.what, Phrase) and entry.what.key in _SPLIT]
    if sum(entry.bytes or 0 for entry in own) != reserved:  # part of it is not on the card
        return entries
    return (*parts, *(entry for entry in entries if entry not in own))


def _size(value: object) -> int | None:
    return value if isinstance(value, int) else None
