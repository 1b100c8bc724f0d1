"""Traces beside each other, for programs: keys, order and units as in docs/compare.md, ``schema_version`` 1."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memdiag.render.support.json import as_json
from memdiag.render.support.look import PLAIN, Look
from memdiag.version import __version__

if TYPE_CHECKING:
    from memdiag.results.compare import Amount, CodePlace, Comparison, Curves, FindingRow, Side, SiteRow

_KINDS = ("reserved", "active", "allocated", "requested")
_PARTS = ("rounding", "pending", "stranded", "foreign", "cache")


def render(report: Comparison, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the comparison as one JSON object, indented, with a newline at its end. ``look`` is not used."""
    return json.dumps(as_dict(report), indent=2, allow_nan=False) + "\n"


def as_dict(report: Comparison) -> dict[str, Any]:
    """Returns the comparison as ``memdiag compare --json`` shows it."""
    shown = {
        "schema_version": report.schema_version,
        "memdiag_version": __version__,
        "is_same": report.is_same,
        "at": report.at,
        "verdicts": list(report.verdicts),
        "traces": [_side(side) for side in report.sides],
        "life_unit": report.life_unit,
        "by_site": None if report.sites is None else [_site(row) for row in report.sites],
        "by_name": None
        if report.names is None
        else [{"name": row.name or None, **_amounts(row.amounts)} for row in report.names],
        "differences": [{"what": row.what, "values": list(row.values)} for row in report.differences],
        "findings": [_finding(row) for row in report.findings],
        "timeline": None if report.curves is None else _curves(report.curves),
        "notes": list(report.notes),
    }
    result: dict[str, Any] = as_json(shown)
    return result


def _side(side: Side) -> dict[str, Any]:
    return {
        "letter": side.letter,
        "path": side.path,
        "device": side.device,
        "at_event": side.at_event,
        "moment": side.moment,
        "num_steps": side.num_steps,
        **{f"{name}_bytes": getattr(side.usage, f"{name}_bytes") for name in _KINDS},
        "peak_reserved_bytes": side.peak.reserved_bytes,
        "peak_allocated_bytes": side.peak_allocated.allocated_bytes,
        "fragmentation": {f"{name}_bytes": getattr(side.split, f"{name}_bytes") for name in _PARTS},
        "reference_request_bytes": side.split.reference_request_bytes,
        "counts": side.counts,
        "facts": side.facts,
        "settings": side.settings,
        "run": side.run,
    }


def _amounts(amounts: tuple[Amount | None, ...]) -> dict[str, Any]:
    base = amounts[0]
    return {
        "amounts": [
            None
            if amount is None
            else {**asdict(amount), "category": amount.category or None, "lifetime": amount.lifetime or None}
            for amount in amounts
        ],
        "delta_bytes": [None if base is None or each is None else each.bytes - base.bytes for each in amounts[1:]],
        "delta_tensors": [
            None if base is None or each is None else each.num_tensors - base.num_tensors for each in amounts[1:]
        ],
        "delta_life": [
            None
            if base is None or each is None or base.life is None or each.life is None
            else round(each.life - base.life, 4)
            for each in amounts[1:]
        ],
    }


def _site(row: SiteRow) -> dict[str, Any]:
    return {
        "label": row.label,
        "names": list(row.names),
        "places": [None if place is None else _place(place) for place in row.places],
        "matched": list(row.how),
        **_amounts(row.amounts),
    }


def _place(place: CodePlace) -> dict[str, Any]:
    return {
        "label": place.label,
        "path": place.path or None,
        "line": place.line or None,
        "function": place.function or None,
    }


def _finding(row: FindingRow) -> dict[str, Any]:
    return {
        "code": row.code,
        "found": [None if each is None else {"severity": each.severity, "title": each.title} for each in row.found],
        "fate": [row.fate(number) for number in range(1, len(row.found))],
    }


def _curves(curves: Curves) -> dict[str, Any]:
    def known(values: tuple[tuple[int, ...], ...]) -> list[list[int | None]]:
        return [[value if value >= 0 else None for value in curve] for curve in values]

    return {
        "aligned_by": curves.aligned_by,
        "start": curves.start,
        "end": curves.end,
        "first_steps": None if curves.first_steps is None else list(curves.first_steps),
        "reserved_bytes": known(curves.reserved),
        "allocated_bytes": known(curves.allocated),
    }
