"""Plots of a page as SVG: curves on one axis, and bytes by row and column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memdiag.render.support.chart import scale
from memdiag.render.support.pages import Markup, tag, together
from memdiag.units import format_bytes

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 1000, 260, 74, 8, 26
# From dark to light, in even steps of lightness: seven colours of cividis.
_SHADES = ("#00224e", "#2a406c", "#575d6d", "#7d7c78", "#a59c74", "#d2c060", "#fee838")
_CELL = 14
_MOST_LABELS = 16


class PlotLine(NamedTuple):
    """One curve.

    Attributes:
        name: Shown on hover.
        color: CSS colour.
        dashes: SVG dash pattern, or "" for none.
        values: Bytes at equal distances, or -1 if unknown.
    """

    name: str
    color: str
    dashes: str
    values: Sequence[int]


def curves(lines: Sequence[PlotLine], ticks: Sequence[tuple[float, str]]) -> Markup:
    """Returns curves of bytes on one axis.

    Args:
        lines: The curves, each from the left edge to the right.
        ticks: Labels below the axis: the position, from 0 to 1, and words.
    """
    highest = max((max(line.values, default=-1) for line in lines), default=-1)
    if highest <= 0:
        return Markup()
    step, unit, unit_bytes, num_ticks = scale(highest)
    top = num_ticks * step * unit_bytes
    wide, high = _WIDTH - _LEFT - 10, _HEIGHT - _TOP - _BOTTOM

    def y(value: float) -> float:
        return _TOP + high * (1 - value / top)

    parts = []
    for number in range(num_ticks + 1):
        at, words = y(number * step * unit_bytes), f"{number * step:g} {unit}" if number else "0"
        parts.append(
            tag(
                "line",
                x1=_LEFT,
                x2=_WIDTH - 10,
                y1=f"{at:.1f}",
                y2=f"{at:.1f}",
                class_="gridline" if number else "axis",
            )
        )
        parts.append(tag("text", words, x=_LEFT - 8, y=f"{at + 4:.1f}", text_anchor="end"))
    for place, words in ticks:
        anchor = "end" if place > 0.95 else "start"
        parts.append(tag("text", words, x=f"{_LEFT + wide * place:.1f}", y=_HEIGHT - 6, text_anchor=anchor))
    for line in lines:
        num = max(len(line.values), 1)
        for run in _runs(line.values):
            points = " ".join(f"{_LEFT + wide * (at + 0.5) / num:.1f},{y(line.values[at]):.1f}" for at in run)
            dashes = line.dashes or None
            parts.append(
                tag("polyline", tag("title", line.name), points=points, stroke=line.color, stroke_dasharray=dashes)
            )
    return tag(
        "svg", *parts, class_="plot", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label="memory over the traces"
    )


def _runs(values: Sequence[int]) -> list[list[int]]:
    """Returns the indices of known values, one list for each run of neighbours."""
    runs: list[list[int]] = []
    for at, value in enumerate(values):
        if value >= 0:
            if runs and runs[-1][-1] == at - 1:
                runs[-1].append(at)
            else:
                runs.append([at])
    return runs


class HeatMapRow(NamedTuple):
    """A row of a heat map.

    Attributes:
        name: Label at the left.
        values: Bytes, or None if the row has no data in this column.
        said: Label at the right.
        meaning: Shown on hover, before the column and the bytes.
    """

    name: str
    values: Sequence[int | None]
    said: str
    meaning: str


def heat(rows: Sequence[HeatMapRow], columns: Sequence[str], low: int, high: int) -> Markup:
    """Returns a heat map of bytes, from ``low`` (dark) to ``high`` (light)."""
    cell = max(min(_CELL, 620 // max(len(rows), 1)), 3)
    side = (_WIDTH - _LEFT - 150) / max(len(columns), 1)
    parts = []
    every = -(-len(rows) * 12 // max(len(rows) * cell, 1))  # no overlapping labels
    for number, row in enumerate(rows):
        y = _TOP + number * cell
        if number % every == 0 or row.said:
            parts.append(tag("text", row.name, x=_LEFT - 8, y=f"{y + cell / 2 + 4:.1f}", text_anchor="end"))
        cells = [
            tag(
                "rect",
                tag("title", f"{row.meaning}, {column}: {format_bytes(value)}"),
                x=f"{_LEFT + at * side:.1f}",
                y=y,
                width=f"{side + 0.2:.1f}",
                height=f"{cell + 0.2:.1f}",
                fill=shade(value, low, high),
            )
            for at, (value, column) in enumerate(zip(row.values, columns, strict=True))
            if value is not None
        ]
        parts.append(tag("g", *cells))
        if row.said:
            parts.append(tag("text", row.said, x=_WIDTH - 142, y=f"{y + cell / 2 + 4:.1f}", class_="short"))
    bottom = _TOP + len(rows) * cell
    step = -(-len(columns) // _MOST_LABELS)
    parts += [
        tag("text", columns[at], x=f"{_LEFT + (at + 0.5) * side:.1f}", y=bottom + 16, text_anchor="middle")
        for at in range(0, len(columns), step)
    ]
    return tag(
        "svg",
        *parts,
        class_="plot",
        viewBox=f"0 0 {_WIDTH} {bottom + 24}",
        role="img",
        aria_label="memory by rank and step",
    )


def shade(value: int, low: int, high: int) -> str:
    """Returns the colour of a value."""
    place = (value - low) / max(high - low, 1)
    return _SHADES[min(max(int(place * len(_SHADES)), 0), len(_SHADES) - 1)]


def heat_legend(low: int, high: int) -> Markup:
    """Returns the legend of the colours."""
    swatches = together(
        tag("span", class_="swatch", style=f"background:{color};margin-right:0;border-radius:0") for color in _SHADES
    )
    return tag("div", tag("span", format_bytes(low), " ", swatches, " ", format_bytes(high)), class_="legend")
