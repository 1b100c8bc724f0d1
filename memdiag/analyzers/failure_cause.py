"""The cause of a failure of which a trace tells the moment: what a message alone leaves open, in numbers that need no guess.

Whether free memory lies in one piece, what stands between the pieces, and in which pools and streams they are, no message says. What
lies outside the allocator, no trace says: there the numbers of the message (all of the device, a limit, other processes) are taken in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.analyzers.failures import Failure
from memdiag.analyzers.places import group_name
from memdiag.analyzers.sites import by_category, by_place
from memdiag.oom.model import Cause, Confidence, Judgement, LedgerEntry, Message
from memdiag.units import format_bytes, plural

# What a perfect arrangement could use, as a part of the device (of what is reserved, where that is unknown). Below the first a better
# arrangement helps this request and hardly the next; below the second the device is simply full.
SCARCE, DUST = 0.1, 0.03
HALF = 0.5  # of the device, or of what is reserved: who has it is the cause
LARGE = 0.25  # of the device outside the allocator: more than contexts and libraries
NUM_PLACES = 3
_ELSEWHERE: tuple[Cause, ...] = ("other_process", "workspace_or_comm")
_REPLACED = ("allocated by", "reserved but unallocated", "reserved by", "reserved,", "cached", "private pool")


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
    def usable(self) -> int:
        """Bytes that would serve the request, were they in one piece."""
        return self.free + (0 if self.was_refused else self.left or 0)

    @property
    def missing(self) -> int:
        """Bytes short, even in one piece."""
        return self.request - self.usable


def cause(failure: Failure, message: Message) -> Judgement:
    """Returns what caused a failure; ``message`` is what was printed, or what the trace says in its place."""
    account = _Account.of(failure, message)
    verdict, alternatives, sure, decisive = _decide(failure, account, message)
    confidence: Confidence = "medium" if not failure.exact or not sure else "high"
    reasons = (*decisive, *_pieces(failure, account), *_whereabouts(failure), *_live(failure), *_retries(failure))
    return Judgement(verdict, confidence, tuple(cause for cause in alternatives if cause != verdict), reasons)


_Decision = tuple[Cause, tuple[Cause, ...], bool, tuple[str, ...]]


def _decide(failure: Failure, account: _Account, message: Message) -> _Decision:
    """Returns the cause, what else it may be, whether the numbers leave no doubt, and the reason."""
    asked = format_bytes(account.request)
    if account.total is not None and account.request > account.total:
        return "capacity", (), True, (f"{asked} was asked for, more than the whole device has ({format_bytes(account.total)}).",)
    in_pieces: tuple[Cause, ...] = ("fragmentation",) if account.missing <= 0 else ()
    if account.was_refused:
        return _refused(failure, account, in_pieces)
    half = account.total is not None and account.outside is not None and account.outside >= HALF * account.total
    if account.missing > 0 or half:
        return _short(failure, account, message, in_pieces)
    inside, beside = format_bytes(account.free), f" and {format_bytes(account.left)} on the device" if account.left else ""
    lay = f"{inside} lay free inside the allocator" + (beside if account.free < account.request else "")
    rest = account.usable - account.request
    text = f"{lay}: {'enough for' if account.free >= account.request else 'together enough for'} the {asked} asked for"
    if failure.fit is not None and failure.fit.fits:
        text += f", and a piece of {format_bytes(failure.fit.largest_free_bytes)} in its own pool and stream was large enough: "
        return "fragmentation", ("unknown",), False, (text + "it came free while the request was failing, or was kept for larger ones.",)
    share = account.usable / max(account.total or failure.usage["reserved"], 1)
    if share >= SCARCE:
        return "fragmentation", (), True, (f"{text}, but in pieces.",)
    scarce = f"Packed without a gap, {format_bytes(rest)} would have been left beside it: nearly all of the memory is in use."
    if share < DUST:
        return "capacity", ("fragmentation",), False, (scarce, f"{text}, but in pieces.")
    return "fragmentation", ("capacity",), account.free >= account.request, (f"{text}, but in pieces.", scarce)


def _refused(failure: Failure, account: _Account, in_pieces: tuple[Cause, ...]) -> _Decision:
    reserved, left, wanted = failure.usage["reserved"], format_bytes(account.left), format_bytes(account.segment)
    if account.limit is not None and reserved >= 0:
        text = f"{format_bytes(reserved)} reserved + {wanted} is more than the {format_bytes(account.limit)} allowed"
        if reserved + account.segment > account.limit:
            return "limit", (*in_pieces, "capacity"), True, (f"{text}, while {left} was free on the device.",)
    text = f"{left} was free on the device, enough for the {wanted} that the driver was asked for: a limit stood in the way."
    return "limit", (*in_pieces, "unknown"), False, (text,)


def _short(failure: Failure, account: _Account, message: Message, in_pieces: tuple[Cause, ...]) -> _Decision:
    """The free bytes are too few, or most of the device is somebody else's."""
    left = "" if account.left is None else f" and {format_bytes(account.left)} on the device"
    short = f"Even in one piece, the {format_bytes(account.free)} free inside the allocator{left} would not hold the "
    text = f"{short}{format_bytes(account.request)} asked for: {format_bytes(account.missing)} are missing."
    reasons = [text] if account.missing > 0 else []
    printed = message.judgement.verdict
    if account.outside is not None and account.total is not None and account.outside >= max(account.missing, LARGE * account.total):
        who: Cause = printed if printed in _ELSEWHERE else "other_process"
        held = f"{format_bytes(account.outside)} of the device's {format_bytes(account.total)} lie outside this allocator, "
        reasons.insert(0, f"{held}which reserves {format_bytes(failure.usage['reserved'])}.")
        others = tuple(other for other in _ELSEWHERE if other != who)
        return who, (*in_pieces, *others, "capacity"), account.outside >= HALF * account.total, tuple(reasons)
    private = failure.private_bytes
    if private >= HALF * failure.usage["reserved"] > 0:
        reasons.append(f"{format_bytes(private)} of the {format_bytes(failure.usage['reserved'])} reserved belong to private pools.")
        return "workspace_or_comm", ("capacity",), False, tuple(reasons)
    known = printed in _ELSEWHERE and (account.outside or 0) >= account.missing
    return "capacity", (printed,) if known else (), account.left is not None, tuple(reasons)


def _pieces(failure: Failure, account: _Account) -> Iterator[str]:
    """How the free bytes lie, and what stands between them."""
    fit = failure.fit
    if fit is None or not account.free or fit.fits:
        return
    where = group_name(failure.device, failure.group)
    elsewhere = account.free - fit.free_bytes
    if not fit.num_free:
        yield f"None of the {plural(failure.num_free, 'free piece')} is of its pool and stream ({where})."
        return
    text = f"Its pool and stream ({where}) have {format_bytes(fit.free_bytes)} free in {plural(fit.num_free, 'piece')}, the largest of "
    text += f"{format_bytes(fit.largest_free_bytes)}: {format_bytes(fit.missing_bytes)} too small"
    others = plural(failure.num_free - fit.num_free, "piece")
    yield text + (f"; {format_bytes(elsewhere)} ({others}) lie in other pools or streams." if elsewhere > 0 else ".")
    if account.missing > 0:
        return
    if not fit.range_bytes:
        yield "No segment there is as long as the request: no tensor's going would make room in one."
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
    reserved, allocated, active, requested = (failure.usage[name] for name in ("reserved", "allocated", "active", "requested"))
    if min(reserved, allocated, active) < 0:
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
    """Returns the account of the device with what is reserved taken apart; what is not in the trace stays as the message has it."""
    parts = [LedgerEntry(what, size, "this process", "computed") for what, size in _parts(failure) if size]
    kept = [entry for entry in message.ledger if entry.owner != "total" and not _is_replaced(entry)]
    whole = next((entry for entry in message.ledger if entry.owner == "total"), None)
    account = _Account.of(failure, message)
    if not kept:
        outside, left = account.outside, account.left
        kept = [LedgerEntry("outside the allocator: contexts, libraries, other processes", outside, "unknown", "computed")]
        kept = [*(kept if outside != 0 else []), LedgerEntry("free", left, "free", "computed")]
    rest = (account.total or 0) - sum(entry.bytes or 0 for entry in (*parts, *kept))
    if account.total is not None and rest and all(entry.bytes is not None for entry in kept):
        kept = _absorb(kept, rest)
    return (*parts, *kept, whole or LedgerEntry("total", account.total, "total", "computed"))


def _is_replaced(entry: LedgerEntry) -> bool:
    return entry.owner == "this process" and any(entry.what.lower().startswith(words) for words in _REPLACED)


def _absorb(kept: list[LedgerEntry], rest: int) -> list[LedgerEntry]:
    """Puts what two-decimal rounding left over to the largest entry that was worked out and not printed."""
    own = [index for index, entry in enumerate(kept) if entry.basis != "printed" and (entry.bytes or 0) + rest >= 0]
    if not own:
        return [*kept, LedgerEntry("rounding of printed numbers", rest, "unknown", "computed")] if rest > 0 else kept
    best = max(own, key=lambda index: kept[index].bytes or 0)
    entry = kept[best]
    return [*kept[:best], LedgerEntry(entry.what, (entry.bytes or 0) + rest, entry.owner, entry.basis), *kept[best + 1 :]]


def _size(value: object) -> int | None:
    return value if isinstance(value, int) else None
