"""The cause of a failure of which a trace tells the moment: what a message alone leaves open, in numbers that need no guess.

Whether free memory lies in one piece, what stands between the pieces, and in which pools and streams they are, no message says. What
lies outside the allocator, no trace says: there the numbers of the message (all of the device, a limit, other processes) are taken in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from memdiag.analyzers.failures import Failure
from memdiag.analyzers.moments import DUST
from memdiag.analyzers.places import group_name
from memdiag.analyzers.sites import by_category, by_place
from memdiag.oom.ledger import account
from memdiag.oom.model import Cause, Confidence, Found, Judgement, LedgerEntry, Message
from memdiag.text import Phrase
from memdiag.units import format_bytes, plural

# What a perfect arrangement could use, as a part of the device (of what is reserved, where that is unknown). Below the first a better
# arrangement helps this request and hardly the next; below DUST the device is simply full.
SCARCE = 0.1
HALF = 0.5  # of the device, or of what is reserved: who has it is the cause
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
        """Whether the device had room for the whole segment: something forbade to take it."""
        return self.left is not None and self.left >= self.segment

    @property
    def is_elsewhere(self) -> bool:
        """Whether most of the device is neither free nor this allocator's."""
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
    """Returns what caused a failure; ``message`` is what was printed, or what the trace says in its place."""
    if failure.free_bytes < 0:
        unknown = "The trace has the failure, but does not tell what was reserved and in use then."
        return replace(message.judgement, reasons=(*message.judgement.reasons, unknown))
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
        return "capacity", (), True, (f"{asked} was asked for, more than the whole device has ({format_bytes(known.total)}).",)
    in_pieces: tuple[Cause, ...] = ("fragmentation",) if known.missing <= 0 else ()
    if known.was_refused:
        return _refused(failure, known, message, in_pieces)
    share = known.usable / max(known.total or failure.usage["reserved"], 1)
    if known.missing > 0 or (known.is_elsewhere and (share < SCARCE or message.judgement.verdict in _ELSEWHERE)):
        return _short(failure, known, message, in_pieces)
    private = 0 if failure.is_private else failure.private_bytes(free=True)
    if known.missing + private > 0 and private >= SET_ASIDE * failure.usage["reserved"]:
        text = f"{format_bytes(private)} lies free in private pools (CUDA graphs, MemPool), where this request could not use it."
        return "workspace_or_comm", ("fragmentation", "capacity"), True, (text,)
    text = _enough(known)
    if failure.fit is not None and failure.fit.fits:
        text += f", and a piece of {format_bytes(failure.fit.largest_free_bytes)} in its own pool and stream was large enough: "
        return "fragmentation", ("unknown",), False, (text + "it came free while the request was failing, or was kept for larger ones.",)
    others: tuple[Cause, ...] = ("other_process",) if known.is_elsewhere else ()
    if share >= SCARCE:
        return "fragmentation", others, True, (f"{text}, but in pieces.",)
    scarce = f"Packed without a gap, {format_bytes(-known.missing)} would have been left beside it: nearly all of the memory is in use."
    if share < DUST:
        return "capacity", ("fragmentation",), False, (scarce, f"{text}, but in pieces.")
    return "fragmentation", ("capacity",), known.free >= known.request, (f"{text}, but in pieces.", scarce)


def _enough(known: _Account) -> str:
    """Says that the free bytes would do."""
    alone = known.free >= known.request
    lay = f"{format_bytes(known.free)} lay free inside the allocator" + ("" if alone else f" and {format_bytes(known.left)} on the device")
    return f"{lay}: {'' if alone else 'together '}enough for the {format_bytes(known.request)} asked for"


def _refused(failure: Failure, known: _Account, message: Message, in_pieces: tuple[Cause, ...]) -> _Decision:
    """The device had room for the whole segment."""
    reserved, left, wanted = failure.usage["reserved"], format_bytes(known.left), format_bytes(known.segment)
    within = (f"Within that, {_enough(known)}, but in pieces.",) if in_pieces else ()
    if known.limit is not None and reserved + known.segment > known.limit:
        text = f"{format_bytes(reserved)} reserved + {wanted} is more than the {format_bytes(known.limit)} allowed"
        return "limit", (*in_pieces, "capacity"), True, (f"{text}, while {left} was free on the device.", *within)
    text = f"{left} was free on the device, enough for the {wanted} that the driver was asked for"
    if message.dialect != "trace" and message.backend in {"cuda", "hip"}:  # there a limit would have been printed
        reason = f"{text}: others held it a moment before, or the driver keeps it for itself."
        return message.judgement.verdict, (*in_pieces, "limit", *message.judgement.alternatives), False, (reason, *within)
    return "limit", (*in_pieces, "unknown"), False, (f"{text}: a limit on this process stood in the way.", *within)


def _short(failure: Failure, known: _Account, message: Message, in_pieces: tuple[Cause, ...]) -> _Decision:
    """The free bytes are too few, or most of the device is somebody else's."""
    left = "" if known.left is None else f" and {format_bytes(known.left)} on the device"
    short = f"Even in one piece, the {format_bytes(known.free)} free inside the allocator{left} would not hold the "
    text = f"{short}{format_bytes(known.request)} asked for: {format_bytes(known.missing)} are missing."
    reasons = [f"{_enough(known)}, but in pieces." if in_pieces else text]
    printed, reserved = message.judgement.verdict, failure.usage["reserved"]
    # Who has it where it is not this allocator, only the message tells.
    others_have_it = known.outside is not None and known.outside >= known.missing
    if others_have_it and (known.is_elsewhere or printed in _ELSEWHERE):
        who: Cause = printed if printed in _ELSEWHERE else "other_process"
        held = f"{format_bytes(known.outside)} of the device's {format_bytes(known.total)} lie outside this allocator"
        reasons.insert(0, f"{held}, which reserves {format_bytes(reserved)}.")
        rivals = tuple(other for other in _ELSEWHERE if other != who)
        return who, (*in_pieces, *rivals, "capacity"), known.is_elsewhere and not in_pieces, tuple(reasons)
    private = failure.private_bytes()
    if private >= HALF * reserved > 0:
        reasons.append(f"{format_bytes(private)} of the {format_bytes(reserved)} reserved belong to private pools.")
        return "workspace_or_comm", ("capacity",), False, tuple(reasons)
    return "capacity", (), known.left is not None, tuple(reasons)


def _pieces(failure: Failure, known: _Account) -> Iterator[str]:
    """How the free bytes lie, and what stands between them."""
    fit = failure.fit
    if fit is None or not known.free or fit.fits:
        return
    where = group_name(failure.device, failure.group)
    elsewhere = known.free - fit.free_bytes
    if not fit.num_free:
        yield f"None of the {plural(failure.num_free, 'free piece')} is of its pool and stream ({where})."
        return
    text = f"Its pool and stream ({where}) have {format_bytes(fit.free_bytes)} free in {plural(fit.num_free, 'piece')}, the largest of "
    text += f"{format_bytes(fit.largest_free_bytes)}: {format_bytes(fit.missing_bytes)} too small"
    others = plural(failure.num_free - fit.num_free, "piece")
    yield text + (f"; {format_bytes(elsewhere)} ({others}) lie in other pools or streams." if elsewhere > 0 else ".")
    if known.missing > 0:
        return
    if not fit.range_bytes:
        yield "No segment there is as long as the request: no tensor's going would make room in one."
        return
    if fit.between_bytes >= known.request:
        yield f"Nowhere there would less than {format_bytes(known.request)} of live tensors have to go to make room."
        return
    tensors = f"{plural(len(fit.between), 'live tensor')} of {format_bytes(fit.between_bytes)}"
    places = by_place(failure.view, fit.between)[:NUM_PLACES]
    made = ", ".join(place.label for place in places)
    yield f"In the way, in the least used range of {format_bytes(fit.range_bytes)}: {tensors}, made at {made}."


def _whereabouts(failure: Failure) -> Iterator[str]:
    """Every byte that is reserved."""
    parts = [(what, size) for what, size in _parts(failure) if size]
    if failure.usage["reserved"] >= 0 and parts:
        listed = " + ".join(f"{format_bytes(size)} {what}" for what, size in parts)
        yield f"{format_bytes(failure.usage['reserved'])} reserved = {listed}."


def _parts(failure: Failure) -> Iterator[tuple[str, int]]:
    """What reserved memory consists of, as far as the trace tells; the parts add up to it."""
    reserved, allocated, requested = (failure.usage[name] for name in ("reserved", "allocated", "requested"))
    active = failure.active_bytes
    if min(reserved, allocated) < 0:
        return
    if requested >= 0:
        yield "asked for by live tensors", requested
        yield "lost to rounding", allocated - requested
    else:
        yield "allocated", allocated
    yield "freed but waiting for a stream", active - allocated
    if failure.split is None:
        yield "free inside the allocator", reserved - active
        return
    yield "free in pieces too small for the request (stranded)", failure.split.stranded
    yield "free in other pools or streams (foreign)", failure.split.foreign
    yield "free and usable (cache)", failure.split.cache


def _live(failure: Failure) -> Iterator[str]:
    """What the memory held."""
    view, rows = failure.view, failure.view.live
    total = int(failure.device.tensors.block_bytes[rows].sum())
    if not total:
        return
    kinds = [f"{name.replace('_', ' ')} {size / total:.0%}" for name, size in by_category(view, rows).items() if size >= 0.01 * total]
    text = f"Live then: {format_bytes(total)} in {plural(len(rows), 'tensor')}"
    yield text + (f" ({', '.join(kinds)})." if kinds and kinds != ["unknown 100%"] else ".")
    places = by_place(view, rows)[:NUM_PLACES]
    yield "Most of it: " + "; ".join(f"{format_bytes(place.bytes)} from {place.label}" for place in places) + "."


def _retries(failure: Failure) -> Iterator[str]:
    references = failure.device.references
    retried = int(np.sum(references.retried & ~references.failed & (references.at_event < failure.here.at)))
    if retried:
        yield f"Before that, cached memory had been given back {plural(retried, 'time')} to serve a request."


def ledger(failure: Failure, message: Message) -> tuple[LedgerEntry, ...]:
    """Returns the account of the device by the numbers of the trace, with what is reserved taken apart; the rest as the message has it."""
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
