"""The verdict of a comparison, one sentence for each trace but the first: the difference and its composition.

Reserved memory is the sum of the memory of call sites and of several kinds of free memory, and so is the difference.
Its largest parts are named, until they cover most of it. If no call site has a good part of it, kinds of tensors are
named instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memdiag.analyzers.support.names import kind_words, short
from memdiag.results.compare import Amount, Side, SiteRow
from memdiag.text import Phrase, joined, phrase
from memdiag.units import format_bytes

_MOST_CAUSES = 2
_ENOUGH = 0.8  # fraction of the difference that is enough
_WORTH = 0.1  # fraction of the difference that is worth mentioning
_SCATTERED = 0.3  # fraction of the difference: if no call site has more, kinds are named
_LEVEL = 0.0005  # fraction of the peak: smaller differences are not mentioned
_FREE = ("stranded", "foreign", "cache")
_OOM = "oom"  # of memdiag.trace.moments.MOMENTS


@dataclass(frozen=True)
class Cause:
    """A part of a difference: additional (or fewer) bytes, and their description ("activations of train.py:38 mlp")."""

    bytes: int
    what: str
    detail: str = ""
    is_free: bool = False


def verdict(number: int, sides: Sequence[Side], sites: Sequence[SiteRow] | None) -> Phrase:
    """Returns the sentence on trace ``number``, compared with the first."""
    base, side = sides[0], sides[number]
    before, after = base.peak_bytes, side.peak_bytes
    letters = {"letter": side.letter, "base": base.letter}
    if before is None or after is None:
        return phrase("compare.incomparable", **letters, silent=base.letter if before is None else side.letter)
    is_reserved = base.usage.reserved_bytes is not None and side.usage.reserved_bytes is not None
    more = after - before
    at_peak = base.at_event is not None and side.at_event is not None
    facts = {
        **letters,
        "noun": "" if is_reserved else phrase("compare.noun"),
        "when": phrase("compare.at_peak" if at_peak else "compare.then"),
    }
    if at_peak and (base.moment_kind == _OOM) != (side.moment_kind == _OOM):
        facts |= {"when": _when(side), "base": phrase("compare.had", letter=base.letter, when=_when(base))}
    if more == 0:
        head = phrase("compare.equal", **facts, bytes=format_bytes(after))
    elif abs(more) < _LEVEL * max(before, 1):
        head = phrase("compare.level", **facts, bytes=format_bytes(after), off=format_bytes(abs(more)))
    else:
        share = f", {more / before:+.1%}" if before else ""
        change = f"{format_bytes(before)} → {format_bytes(after)}{share}"
        head = phrase(
            "compare.needs.more" if more > 0 else "compare.needs.less",
            **facts,
            bytes=format_bytes(abs(more)),
            change=change,
        )
    found_causes = causes(number, sides, sites)
    tail = _tail(more, found_causes, level=abs(more) < _LEVEL * max(before, 1))
    return joined((_failed(base, side), phrase("compare.verdict", head=head, tail=tail)))


def _when(side: Side) -> Phrase:
    """Returns the moment of a trace: its failed allocation, or its peak."""
    return phrase("compare.at_failure" if side.moment_kind == _OOM else "compare.at_peak")


def _failed(base: Side, side: Side) -> Phrase | str:
    """Returns the sentence on requests that failed in only one of two traces; its peak is then the failure."""
    counts = [each.counts.get("num_ooms") for each in (base, side)]
    if bool(counts[0]) == bool(counts[1]):
        return ""
    broken, other = (base, side) if counts[0] else (side, base)
    return phrase(
        "compare.failed.unknown" if None in counts else "compare.failed", letter=broken.letter, other=other.letter
    )


def causes(number: int, sides: Sequence[Side], sites: Sequence[SiteRow] | None) -> list[Cause]:
    """Returns the parts of a difference, largest first."""
    base, side = sides[0], sides[number]
    parts = list(_free(base, side))
    own = list(_of_sites(number, sites or (), base.letter, side.letter))
    if own:
        more = abs((side.peak_bytes or 0) - (base.peak_bytes or 0))
        largest = max([*own, *parts], key=lambda cause: abs(cause.bytes))
        if abs(largest.bytes) < _SCATTERED * more:
            own = list(_of_kinds(number, sites or ()))
    else:
        held = _difference(base.usage.active_bytes, side.usage.active_bytes)
        own = [Cause(held, phrase("compare.live"))] if held else []
    return sorted([*own, *parts], key=lambda cause: -abs(cause.bytes))


def _tail(more: int, found_causes: list[Cause], *, level: bool) -> Phrase | str:
    """Returns the composition of the difference, as the end of the sentence."""
    if level:
        moved = [cause for cause in found_causes if cause.bytes][:1]
        return phrase("compare.tail.though", change=_as_change(moved[0])) if moved else ""
    mine, against = ([cause for cause in found_causes if cause.bytes * more * sign > 0] for sign in (1, -1))
    named: list[Cause] = []
    for cause in mine[:_MOST_CAUSES]:
        enough = sum(abs(each.bytes) for each in named) >= _ENOUGH * abs(more)
        if not enough and abs(cause.bytes) >= _WORTH * abs(more):
            named.append(cause)
    if not named:
        return ""
    counter = against[:1] if against and abs(against[0].bytes) >= _SCATTERED * abs(more) else []
    if counter or abs(named[0].bytes) > abs(more):
        return phrase("compare.tail", parts=joined([_as_change(cause) for cause in [*named, *counter]], "; "))
    return phrase("compare.tail", parts=joined([_as_part(cause) for cause in named], ", "))


def _as_part(cause: Cause) -> Phrase:
    return phrase(
        "compare.part.free" if cause.is_free else "compare.part",
        bytes=format_bytes(abs(cause.bytes)),
        what=cause.what,
        detail=cause.detail,
    )


def _as_change(cause: Cause) -> Phrase:
    amount = phrase(
        "compare.amount.more" if cause.bytes > 0 else "compare.amount.less", bytes=format_bytes(abs(cause.bytes))
    )
    return phrase(
        "compare.change.free" if cause.is_free else "compare.change",
        amount=amount,
        what=cause.what,
        detail=cause.detail,
    )


def _free(base: Side, side: Side) -> Iterable[Cause]:
    if base.usage.reserved_bytes is None or side.usage.reserved_bytes is None:
        return
    parts = [(name, getattr(base.split, f"{name}_bytes"), getattr(side.split, f"{name}_bytes")) for name in _FREE]
    if any(before is None or after is None for _, before, after in parts):
        free = [_difference(each.usage.active_bytes, each.usage.reserved_bytes) for each in (base, side)]
        if free[0] is not None and free[1] is not None and free[0] != free[1]:
            yield Cause(free[1] - free[0], phrase("compare.free"), is_free=True)
        return
    for name, before, after in parts:
        if before != after:
            yield Cause(after - before, phrase(f"compare.free.{name}"), is_free=True)


def _of_sites(number: int, sites: Iterable[SiteRow], base: str, other: str) -> Iterable[Cause]:
    for row in sites:
        before, after = row.amounts[0], row.amounts[number]
        if before is None or after is None or before.bytes == after.bytes:
            continue
        larger = after if after.bytes > before.bytes else before
        label = short(row.label)
        what = phrase(
            "compare.kind" if label.startswith("(") else "compare.kind.of",
            kind=kind_words(larger.category),
            place=label,
        )
        yield Cause(after.bytes - before.bytes, what, _counts(before, after, base, other))


def _counts(before: Amount, after: Amount, base: str, other: str) -> Phrase:
    for mine, theirs, letter in ((after, before, base), (before, after, other)):
        if theirs.num_tensors == 0:
            return phrase("compare.counts.none", count=mine.num_tensors, letter=letter)
    if before.num_tensors == after.num_tensors:
        return phrase("compare.counts.same", count=after.num_tensors)
    return phrase("compare.counts", count=before.num_tensors, now=after.num_tensors)


def _of_kinds(number: int, sites: Iterable[SiteRow]) -> Iterable[Cause]:
    """Yields the differences by kind of tensor, with the call site that has most of it."""
    total: dict[str, int] = {}
    most: dict[str, tuple[int, str]] = {}
    for row in sites:
        before, after = row.amounts[0], row.amounts[number]
        if before is None or after is None:
            continue
        change = after.bytes - before.bytes
        kind = kind_words((after if after.bytes > before.bytes else before).category)
        total[kind] = total.get(kind, 0) + change
        if abs(change) > abs(most.get(kind, (0, ""))[0]):
            most[kind] = (change, short(row.label))
    for kind, change in total.items():
        if change:
            at, label = most[kind]
            yield Cause(
                change,
                kind,
                phrase("compare.most", bytes=format_bytes(abs(at)), place=label) if at * change > 0 else "",
            )


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
