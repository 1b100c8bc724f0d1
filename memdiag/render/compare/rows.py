"""The rows of a comparison as words, for all forms for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memdiag import vocabulary
from memdiag.render.support.split import PARTS
from memdiag.render.support.words import USAGE
from memdiag.text import Phrase, catalogue, joined, phrase, plain, shorten
from memdiag.units import format_bytes, format_count

if TYPE_CHECKING:
    from memdiag.results.compare import Amount, Comparison, NameRow, Side, SiteRow

UNKNOWN = "?"
NONE = "-"
_LONGEST = 240


def when(report: Comparison) -> str:
    """Returns the compared moments, in words."""
    if any(side.at_event is None for side in report.sides):
        return phrase("compare.when.state")
    kinds = {side.moment_kind for side in report.sides}
    if kinds == {"oom", "peak"}:
        return phrase("compare.when.failed")
    kind = kinds.pop() if len(kinds) == 1 else ""
    if kind in {"peak", "allocated", "reserved"}:
        return phrase(f"compare.when.{kind}")
    return vocabulary.when(kind) if kind in {"oom", "end"} else phrase("compare.when.then")


def change(before: int | None, after: int | None) -> str:
    """Returns ``+1.50 GiB``; ``=`` for no difference; ``?`` if either is unknown."""
    if before is None or after is None:
        return UNKNOWN
    return "=" if before == after else ("+" if after > before else "-") + format_bytes(abs(after - before))


def counted(before: int | None, after: int | None) -> str:
    """Returns ``+3``; ``=`` for no difference; ``?`` if either is unknown."""
    if before is None or after is None:
        return UNKNOWN
    return "=" if before == after else f"{after - before:+,}"


def size(value: int | None) -> str:
    """Returns bytes in words; ``-`` for none, ``?`` if unknown."""
    return UNKNOWN if value is None else format_bytes(value) if value else NONE


def held(amount: Amount | None) -> str:
    """Returns the bytes of an amount in words."""
    return size(None if amount is None else amount.bytes)


def heads(report: Comparison) -> list[str]:
    """Returns the titles of the columns of bytes: ``A``, ``B``, ``B - A``.

    For more than two traces, they are ``A``, ``B - A``, ``C - A``.
    """
    base, *others = (side.letter for side in report.sides)
    return (
        [base, *others, f"{others[0]} - {base}"]
        if len(others) == 1
        else [base, *(f"{other} - {base}" for other in others)]
    )


def amounts(
    values: Sequence[int | None], tell: Callable[[int | None], str], differ: Callable[[int | None, int | None], str]
) -> list[str]:
    """Returns the cells below ``heads``."""
    base, *others = values
    if len(others) == 1:
        return [tell(base), tell(others[0]), differ(base, others[0])]
    return [tell(base), *(differ(base, other) for other in others)]


def byte_cells(row: SiteRow | NameRow) -> list[str]:
    """Returns the bytes of a call site or a name, as cells below ``heads``."""
    return amounts([None if amount is None else amount.bytes for amount in row.amounts], size, change)


def tensor_cell(row: SiteRow | NameRow) -> str:
    """Returns ``391 → 554``, or ``391`` if it is the same everywhere."""
    counts = [
        UNKNOWN if amount is None else format_count(amount.num_tensors) if amount.num_tensors else NONE
        for amount in row.amounts
    ]
    return counts[0] if len(set(counts)) == 1 else " → ".join(counts)


def life_cell(row: SiteRow | NameRow) -> str:
    """Returns ``0.12 → 0.95``, the lifetimes of tensors in each trace; ``stays`` for those that are never freed."""
    lives = [_life(amount) for amount in row.amounts]
    return lives[0] if len(set(lives)) == 1 else " → ".join(lives)


def _life(amount: Amount | None) -> str:
    if amount is None:
        return UNKNOWN
    if not amount.bytes:
        return NONE
    return (
        phrase("compare.stays")
        if amount.mean_lifetime is None or amount.never_freed_bytes * 2 > amount.bytes
        else f"{amount.mean_lifetime:.2f}"
    )


def life_title(report: Comparison) -> str:
    """Returns the unit of the column of lifetimes."""
    return phrase("compare.head.lives.steps" if report.lifetime_unit == "steps" else "compare.head.lives.share")


def place_words(row: SiteRow) -> str:
    """Returns a call site with its other locations: ``train.py:38 mlp``, ``train.py:38 mlp (B: line 41)``."""
    first = next(place for place in row.places if place is not None)
    said: list[str] = []
    for number, (place, how) in enumerate(zip(row.places, row.matched, strict=True)):
        letter = chr(ord("A") + number)
        if place is not None and how == "moved":
            said.append(phrase("compare.line", letter=letter, line=str(place.line)))
        elif place is not None and how == "renamed":
            said.append(f"{letter}: {plain(place.function, 30)}")
    return plain(first.label, _LONGEST) + (f" ({', '.join(said)})" if said else "")


def usage_rows(report: Comparison) -> list[tuple[str, list[str]]]:
    """Returns the bytes at the compared moment: name and cells below ``heads``."""
    rows = []
    for name in USAGE:
        values = [getattr(side.usage, f"{name}_bytes") for side in report.sides]
        rows.append((vocabulary.name("curve", name), amounts(values, size, change)))
    return rows


def split_rows(report: Comparison) -> list[tuple[str, list[str], str]]:
    """Returns the parts of reserved - requested: name, cells below ``heads``, meaning."""
    rows = []
    for name in PARTS[1:]:
        values = [getattr(side.split, f"{name}_bytes") for side in report.sides]
        if any(values) or (None in values and 0 in values):
            rows.append(
                (vocabulary.name("part", name), amounts(values, size, change), vocabulary.meaning("part", name))
            )
    return rows


def count_rows(report: Comparison) -> list[tuple[str, list[str]]]:
    """Returns peaks of the other curve, driver calls, retries and failures: name and cells below ``heads``."""
    values = [side.peak_allocated.allocated_bytes for side in report.sides]
    rows: list[tuple[str, list[str]]] = (
        [(phrase("compare.row.allocated"), amounts(values, size, change))] if any(values) else []
    )
    keys = ("num_segments_allocated", "num_retries", "num_ooms")

    def tell(count: int | None) -> str:
        return UNKNOWN if count is None else format_count(count)

    for key in keys:
        counts = [side.counts.get(key) for side in report.sides]
        if any(counts) or (None in counts and 0 in counts):
            rows.append((phrase(f"compare.row.{key}"), amounts(counts, tell, counted)))
    return rows


def side_words(side: Side) -> str:
    """Returns a description of a trace in one line: backend, version, moment."""
    unknown = phrase("compare.value.unknown")
    shown_facts = [
        phrase("compare.device", device=str(side.device)),
        side.facts.get("backend", unknown),
        f"torch {side.facts.get('torch', unknown)}",
    ]
    if side.facts.get("phantom device") == "yes":
        shown_facts.append(phrase("compare.simulated"))
    if side.num_steps:
        shown_facts.append(phrase("compare.steps", count=side.num_steps))
    return plain(phrase("compare.side.facts", facts=joined(shown_facts, ", "), moment=side.moment))


def difference_rows(report: Comparison, width: int) -> list[list[str]]:
    """Returns differences in settings and facts.

    A row has the name, then a value for each trace, at most ``width`` characters each.
    """
    return [
        [
            plain(_fact(row.name), 40),
            *(NONE if value is None else shorten(plain(_value(value)), width) for value in row.values),
        ]
        for row in report.differences
    ]


def _fact(name: str) -> str:
    """Returns the name of a fact in the active language; names of settings, variables and options are unchanged."""
    for begin, key in (("version of ", "compare.fact.version"), ("phantom ", "compare.fact.simulated")):
        if name.startswith(begin) and name != "phantom device":
            return phrase(key, name=name.removeprefix(begin))
    return phrase(f"compare.fact.{name}") if f"fact.{name}" in catalogue("compare") else name


def _value(value: str) -> str:
    return phrase(f"compare.fact.value.{value}") if f"fact.value.{value}" in catalogue("compare") else value


def finding_rows(report: Comparison) -> list[tuple[Phrase, str, str]]:
    """Returns the findings that are not the same everywhere: fate ("new in B"), code, title."""
    rows: list[tuple[Phrase, str, str]] = []
    for row in report.findings:
        for number in range(1, len(row.found)):
            fate, letter = row.fate(number), report.sides[number].letter
            found, base = row.found[number], row.found[0]
            if fate == "new" and found is not None:
                rows.append(
                    (phrase("compare.fate.new", letter=letter), found.code, _titled(found.severity, found.title))
                )
            elif fate == "gone" and base is not None:
                rows.append((phrase("compare.fate.gone", letter=letter), base.code, _titled(base.severity, base.title)))
            elif fate in {"worse", "better"} and found is not None and base is not None:
                severities = f"{_severity(base.severity)} → {_severity(found.severity)}"
                text = phrase("compare.finding", severity=severities, title=plain(found.title, _LONGEST))
                rows.append((phrase(f"compare.fate.{fate}", letter=letter), found.code, text))
    order = ("new", "worse", "better", "gone")
    return sorted(rows, key=lambda row: order.index(row[0].key.rpartition(".")[2]))


def _titled(severity: str, title: str) -> Phrase:
    return phrase("compare.finding", severity=_severity(severity), title=plain(title, _LONGEST))


def _severity(severity: str) -> Phrase:
    return phrase(f"compare.severity.{severity}")


def num_alike(report: Comparison) -> int:
    """Returns the number of findings that are the same everywhere."""
    return sum(all(row.fate(number) == "same" for number in range(1, len(row.found))) for row in report.findings)
