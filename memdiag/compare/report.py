"""Compares traces with the first of them: call sites, names, settings, findings, and curves on one axis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from memdiag.compare.axis import axes_of, curves_of
from memdiag.compare.facts import differences_of
from memdiag.compare.places import Known, match, shared_end
from memdiag.compare.side import ComparedTrace, side_of
from memdiag.compare.words import verdict
from memdiag.errors import MemdiagError
from memdiag.results.compare import (
    NOTHING,
    Amount,
    CodePlace,
    ComparedFinding,
    Comparison,
    Curves,
    FindingRow,
    How,
    NameRow,
    Side,
    SiteHeld,
    SiteRow,
)
from memdiag.text import joined, phrase
from memdiag.trace.moments import DEFAULT, require_moment


def compare(
    chosen: Sequence[ComparedTrace], *, at: str | int = DEFAULT, top: int = 10, with_findings: bool = True
) -> Comparison:
    """Compares traces; the first is the base.

    Args:
        chosen: Two or more traces, with the device of each.
        at: The moment, as in ``memdiag.trace.moments``.
        top: Number of rows to show in a list.
        with_findings: Whether each trace is also analyzed.

    Raises:
        MemdiagError: There are fewer than two.
    """
    if len(chosen) < 2:
        raise MemdiagError(phrase("errors.one-trace"), phrase("errors.one-trace.hint"))
    devices = [each.device for each in chosen]
    for device in devices:
        require_moment([device], at)
    aligned_by, axes = axes_of(devices)
    sides_with_known = [
        side_of(each, axis, at=at, with_findings=with_findings) for each, axis in zip(chosen, axes, strict=True)
    ]
    sides, known = tuple(side for side, _ in sides_with_known), [known for _, known in sides_with_known]
    return held_against(sides, known, curves_of(devices), "steps" if aligned_by == "step" else "share", at=at, top=top)


def held_against(
    sides: tuple[Side, ...],
    known: Sequence[Known],
    curves: Curves | None,
    lifetime_unit: Literal["steps", "share"],
    *,
    at: str | int,
    top: int,
) -> Comparison:
    """Returns the comparison of several described traces."""
    sites = site_rows([side.sites for side in sides], known)
    names = _name_rows(sides)
    differences, findings = differences_of(sides), _finding_rows(sides)
    comparison = Comparison(
        sides=sides,
        verdicts=tuple(verdict(number, sides, sites) for number in range(1, len(sides))),
        is_same=False,
        lifetime_unit=lifetime_unit,
        sites=sites,
        names=names,
        differences=differences,
        findings=findings,
        curves=curves,
        at=at,
        top=top,
        notes=tuple(_notes(sides)),
        shared_end=shared_end(sites or ()),
    )
    return _same(comparison) if _is_same(comparison) else comparison


def site_rows(sites: Sequence[Sequence[SiteHeld] | None], known: Sequence[Known]) -> tuple[SiteRow, ...] | None:
    """Returns every call site that holds memory in any trace, largest difference to the base first.

    None if fewer than two traces have call sites.

    Args:
        sites: Call sites of each trace, or None if it has none.
        known: The same call sites, and the trace's known lines.
    """
    if sum(held is not None for held in sites) < 2:
        return None
    count = len(sites)
    rows: list[tuple[list[CodePlace | None], list[How | None], list[Amount | None], tuple[str, ...]]] = []
    lines: dict[str, frozenset[tuple[str, int]]] = {}
    for number, (mine, own) in enumerate(zip(sites, known, strict=True)):
        representatives = [next(place for place in row[0] if place is not None) for row in rows]
        matched = match(Known(representatives, lines), own)
        for held, found in zip(mine or (), matched, strict=True):
            row, found_by = found if found is not None else (len(rows), "base" if number == 0 else "only here")
            if found is None:
                empty: list[Amount | None] = [None if other is None else NOTHING for other in sites]
                rows.append(([None] * count, [None] * count, empty, held.names))
            places, how, amounts, _ = rows[row]
            places[number], how[number], amounts[number] = held.place, found_by, held.amount
        lines = {path: lines.get(path, frozenset()) | more for path, more in own.lines.items()} | {
            path: more for path, more in lines.items() if path not in own.lines
        }
    made = [SiteRow(tuple(places), tuple(how), tuple(amounts), names) for places, how, amounts, names in rows]
    return tuple(sorted(made, key=lambda row: (-_most_moved(row.amounts), -_most_held(row.amounts), row.label)))


def _most_moved(amounts: Sequence[Amount | None]) -> int:
    base = (amounts[0] or NOTHING).bytes
    return max((abs(amount.bytes - base) for amount in amounts[1:] if amount is not None), default=0)


def _most_held(amounts: Sequence[Amount | None]) -> int:
    return max((amount.bytes for amount in amounts if amount is not None), default=0)


def _name_rows(sides: Sequence[Side]) -> tuple[NameRow, ...] | None:
    if sum(side.names is not None for side in sides) < 2:
        return None
    names = dict.fromkeys(name for side in sides for name in side.names or ())
    rows = [
        NameRow(name, tuple(None if side.names is None else side.names.get(name, NOTHING) for side in sides))
        for name in names
    ]
    return tuple(sorted(rows, key=lambda row: (-_most_moved(row.amounts), -_most_held(row.amounts), row.name)))


def _finding_rows(sides: Sequence[Side]) -> tuple[FindingRow, ...]:
    """Pairs findings by code; several of one code in order of weight."""
    rows: dict[tuple[str, int], list[ComparedFinding | None]] = {}
    for number, side in enumerate(sides):
        seen: Counter[str] = Counter()
        for found in side.findings:
            key = (found.code, seen[found.code])
            seen[found.code] += 1
            rows.setdefault(key, [None] * len(sides))[number] = found
    return tuple(FindingRow(code, tuple(found)) for (code, _), found in rows.items())


def _notes(sides: Sequence[Side]) -> list[str]:
    notes: list[str] = []
    for what, silent in (
        (phrase("compare.note.sites"), [side.letter for side in sides if side.sites is None]),
        (phrase("compare.note.names"), [side.letter for side in sides if side.names is None]),
        (phrase("compare.note.reserved"), [side.letter for side in sides if side.usage.reserved_bytes is None]),
    ):
        if silent and len(silent) < len(sides):
            notes.append(phrase("compare.note.silent", letters=joined(silent, ", "), what=what))
        elif silent:
            notes.append(phrase("compare.note.silent.all", what=what))
    if len({side.facts.get("recorded") for side in sides}) > 1:
        notes.append(phrase("compare.note.start"))
    return notes


def _is_same(comparison: Comparison) -> bool:
    """Returns whether no compared value differs: bytes, call sites, names, settings, findings, curves."""
    base = comparison.sides[0]
    amounts = [row.amounts for row in comparison.sites or ()] + [row.amounts for row in comparison.names or ()]
    return (
        not comparison.differences
        and all(len(set(row)) == 1 for row in amounts)
        and all(len(set(row.found)) == 1 for row in comparison.findings)
        and all(
            (side.usage, side.split, side.counts, side.peak_allocated, side.num_steps)
            == (base.usage, base.split, base.counts, base.peak_allocated, base.num_steps)
            for side in comparison.sides
        )
        and (
            comparison.curves is None
            or len({*zip(comparison.curves.reserved, comparison.curves.allocated, strict=True)}) == 1
        )
    )


def _same(comparison: Comparison) -> Comparison:
    base, *others = comparison.sides
    said = [phrase("compare.same", letter=side.letter, base=base.letter) for side in others]
    return replace(comparison, is_same=True, verdicts=tuple(said))
