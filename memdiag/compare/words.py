"""The verdict of a comparison, one sentence for each trace but the first: how much more or less, and what that is.

What is reserved is the sum of what places in the code hold and of what is free in several ways; so is the difference. Of its parts the
largest are named, until most of it is told. Where no place has a good part of it, kinds of tensors are named instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memdiag.analyzers.names import kind_words, short
from memdiag.compare.model import NOTHING, Amount, Side, SiteRow
from memdiag.units import format_bytes, format_count, plural

_MOST_CAUSES = 2
_TOLD = 0.8  # share of the difference that is enough
_WORTH = 0.1  # share of the difference that is worth a word
_SCATTERED = 0.3  # of the difference: if no place has more, kinds are named
_LEVEL = 0.0005  # of the peak: less is no difference in words
_FREE = {
    "stranded": "free in pieces too small to use (stranded)",
    "foreign": "free, but tied to another pool or stream",
    "cache": "cache, free and reusable",
}


@dataclass(frozen=True)
class Cause:
    """A part of a difference: bytes more (or less), and what they are ("activations of train.py:38 mlp")."""

    bytes: int
    what: str
    detail: str = ""
    is_free: bool = False


def verdict(number: int, sides: Sequence[Side], sites: Sequence[SiteRow] | None) -> str:
    """Returns the sentence on trace ``number``, held against the first."""
    base, side = sides[0], sides[number]
    before, after = base.peak_bytes, side.peak_bytes
    if before is None or after is None:
        silent = base.letter if before is None else side.letter
        return f"{side.letter} and {base.letter} cannot be held against each other: {silent} does not say how much was in use."
    noun = "" if base.usage.reserved_bytes is not None and side.usage.reserved_bytes is not None else " of allocated memory"
    more = after - before
    where = "at its peak" if base.at_event is not None and side.at_event is not None else "then"
    if more == 0:
        head = f"{side.letter} needs exactly what {base.letter} needs {where}: {format_bytes(after)}{noun}"
    elif abs(more) < _LEVEL * max(before, 1):
        head = f"{side.letter} needs what {base.letter} needs {where}, to {format_bytes(abs(more))}: {format_bytes(after)}{noun}"
    else:
        share = f", {more / before:+.1%}" if before else ""
        head = (
            f"{side.letter} needs {format_bytes(abs(more))} {'more' if more > 0 else 'less'}{noun} {where} than {base.letter} "
            f"({format_bytes(before)} → {format_bytes(after)}{share})"
        )
    told = causes(number, sides, sites)
    return f"{head}{_tail(more, told, level=abs(more) < _LEVEL * max(before, 1))}.{_failed(base, side)}"


def _failed(base: Side, side: Side) -> str:
    """Returns the sentence on requests that failed in one of the two only: then its peak is where it stopped."""
    counts = [each.counts.get("num_ooms") for each in (base, side)]
    if bool(counts[0]) == bool(counts[1]):
        return ""
    broken, other = (base, side) if counts[0] else (side, base)
    does = "does not say whether it did" if None in counts else "did not"
    return f" {broken.letter} ran out of memory, {other.letter} {does}."


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
        own = [Cause(held, "live tensors")] if held else []
    return sorted([*own, *parts], key=lambda cause: -abs(cause.bytes))


def _tail(more: int, told: list[Cause], *, level: bool) -> str:
    """Returns what the difference consists of, as the end of the sentence."""
    if level:
        moved = [cause for cause in told if cause.bytes][:1]
        return f", though {_as_change(moved[0])}" if moved else ""
    mine, against = ([cause for cause in told if cause.bytes * more * sign > 0] for sign in (1, -1))
    named: list[Cause] = []
    for cause in mine[:_MOST_CAUSES]:
        enough = sum(abs(each.bytes) for each in named) >= _TOLD * abs(more)
        if not enough and abs(cause.bytes) >= _WORTH * abs(more):
            named.append(cause)
    if not named:
        return ""
    counter = against[:1] if against and abs(against[0].bytes) >= _SCATTERED * abs(more) else []
    if counter or abs(named[0].bytes) > abs(more):
        return ": " + "; ".join(_as_change(cause) for cause in [*named, *counter])
    return ": " + ", ".join(_as_part(cause) for cause in named)


def _as_part(cause: Cause) -> str:
    return f"{format_bytes(abs(cause.bytes))} of it {'is' if cause.is_free else 'are'} {cause.what}{cause.detail}"


def _as_change(cause: Cause) -> str:
    amount = f"{format_bytes(abs(cause.bytes))} {'more' if cause.bytes > 0 else 'less'}"
    return f"{amount} is {cause.what}" if cause.is_free else f"{cause.what} take {amount}{cause.detail}"


def _free(base: Side, side: Side) -> Iterable[Cause]:
    if base.usage.reserved_bytes is None or side.usage.reserved_bytes is None:
        return
    names = tuple(_FREE)
    parts = [(name, getattr(base.split, f"{name}_bytes"), getattr(side.split, f"{name}_bytes")) for name in names]
    if any(before is None or after is None for _, before, after in parts):
        free = [_difference(each.usage.active_bytes, each.usage.reserved_bytes) for each in (base, side)]
        if free[0] is not None and free[1] is not None and free[0] != free[1]:
            yield Cause(free[1] - free[0], "free", is_free=True)
        return
    for name, before, after in parts:
        if before != after:
            yield Cause(after - before, _FREE[name], is_free=True)


def _of_sites(number: int, sites: Iterable[SiteRow], base: str, other: str) -> Iterable[Cause]:
    for row in sites:
        before, after = row.amounts[0], row.amounts[number]
        if before is None or after is None or before.bytes == after.bytes:
            continue
        larger = after if after.bytes > before.bytes else before
        label = short(row.label)
        what = f"{kind_words(larger.category)} {label}" if label.startswith("(") else f"{kind_words(larger.category)} of {label}"
        yield Cause(after.bytes - before.bytes, what, _counts(before, after, base, other))


def _counts(before: Amount, after: Amount, base: str, other: str) -> str:
    for mine, theirs, letter in ((after, before, base), (before, after, other)):
        if theirs.num_tensors == 0:
            return f" ({plural(mine.num_tensors, 'tensor')}, none in {letter})"
    if before.num_tensors == after.num_tensors:
        return f" ({plural(after.num_tensors, 'tensor')} in both)"
    return f" ({plural(before.num_tensors, 'tensor')} → {format_count(after.num_tensors)})"


def _of_kinds(number: int, sites: Iterable[SiteRow]) -> Iterable[Cause]:
    """Yields the differences of each kind of tensors, with the place that has most of it."""
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
            yield Cause(change, kind, f" (most of them, {format_bytes(abs(at))}, of {label})" if at * change > 0 else "")


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def is_alike(row: SiteRow) -> bool:
    """Whether a place holds the same in all traces that tell."""
    known = [amount or NOTHING for amount in row.amounts]
    return len({(amount.bytes, amount.num_tensors, amount.life) for amount in known}) == 1
