"""Bytes by rank and step, as a table for a heat map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memdiag.results.fleet import HeatMap

_LEAST_STEPS = 2


def heat_of(ranks: Mapping[int, Mapping[str, Any]]) -> HeatMap | None:
    """Returns the highest bytes of each rank in each step, else in equal parts of the traces, or None."""
    if not ranks:
        return None
    with_steps = sum(len(facts.get("steps", ())) >= _LEAST_STEPS for facts in ranks.values())
    if 2 * with_steps > len(ranks):
        return _by_step(ranks)
    known = {rank for rank, facts in ranks.items() if facts.get("peak_reserved_bytes") is not None}
    what = "reserved" if known else "allocated"
    curves = {rank: (facts.get("curve") or []) if rank in known or not known else [] for rank, facts in ranks.items()}
    columns = max(map(len, curves.values()))
    if columns < _LEAST_STEPS:
        return None
    rows = tuple(_stretched(curve, columns) for curve in curves.values())
    return HeatMap(what, "trace", tuple(f"{100 * at // columns} %" for at in range(columns)), tuple(curves), rows)


def _stretched(curve: Sequence[int], columns: int) -> tuple[int | None, ...]:
    """Returns a curve in a given number of columns.

    A trace of few events has fewer values, which still cover all of it.
    """
    if not curve:
        return (None,) * columns
    return tuple(curve[at * len(curve) // columns] for at in range(columns))


def _by_step(ranks: Mapping[int, Mapping[str, Any]]) -> HeatMap:
    width = max(int(facts.get("step_width", 1)) for facts in ranks.values())
    reserved = any(value >= 0 for facts in ranks.values() for _, value, _ in facts.get("steps", ()))
    tables: list[dict[int, int]] = []
    for facts in ranks.values():
        table: dict[int, int] = {}
        for step, *values in facts.get("steps", ()):
            value = values[0 if reserved else 1]
            if value >= 0:  # widths are powers of two, so a wide column contains whole narrow ones
                table[step // width] = max(table.get(step // width, -1), value)
        tables.append(table)
    there = sorted({column for table in tables for column in table})
    names = tuple(
        str(column * width) if width == 1 else f"{column * width}-{(column + 1) * width - 1}" for column in there
    )
    rows = tuple(tuple(table.get(column) for column in there) for table in tables)
    return HeatMap("reserved" if reserved else "allocated", "step", names, tuple(ranks), rows)
