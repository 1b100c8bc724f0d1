"""Curves of several traces on one axis in characters: the base as an area, the others as their letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memdiag.render.support.chart import columns, scale
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.results.compare import Comparison, Curves

Span = tuple[str, str]  # text and its style
STYLES = ("cyan", "bold yellow", "bold magenta", "bold green", "bold red", "bold blue", "bold", "bold cyan")
_LABEL = 9  # columns for "12.5 GiB "
_BASE, _SEVERAL = "░", "*"


def chart(curves: Curves, which: Sequence[Sequence[int]], letters: Sequence[str], width: int) -> list[list[Span]]:
    """Returns the lines of a chart with one curve per trace, at most ``width`` columns wide; [] without data."""
    highest = max((max(values, default=-1) for values in which), default=-1)
    if highest <= 0:
        return []
    plot = max(width - _LABEL - 1, 20)
    step, unit, unit_bytes, num_ticks = scale(highest)
    per_tick = {1: 8, 2: 4, 3: 3, 4: 2, 5: 2}[num_ticks]
    rows = per_tick * num_ticks
    top = num_ticks * step * unit_bytes
    heights = [
        [-1 if value < 0 else min(max(round(value / top * rows), 1), rows) for value in columns(values, plot)]
        for values in which
    ]
    lines = []
    for row in range(rows, 0, -1):
        tick = row % per_tick == 0
        label = f"{step * row / per_tick:g} {unit}" if tick else ""
        line: list[Span] = [(f"{label:>{_LABEL - 1}} " + ("┤" if tick else "│"), "dim")]
        line += [_cell([curve[column] for curve in heights], row, letters) for column in range(plot)]
        lines.append(line)
    return [
        *lines,
        [(f"{'0':>{_LABEL - 1}} └" + "─" * plot, "dim")],
        [(" " * (_LABEL + 1) + _axis(curves, plot), "dim")],
    ]


def _cell(heights: Sequence[int], row: int, letters: Sequence[str]) -> Span:
    """Returns a cell of the chart: the letter of a curve that ends here, the area of the base, or a space."""
    here = [number for number, height in enumerate(heights) if number and height == row]
    if here:
        return (_SEVERAL, "bold") if len(here) > 1 else (letters[here[0]], STYLES[here[0] % len(STYLES)])
    return (_BASE, STYLES[0]) if heights[0] >= row else (" ", "")


def _axis(curves: Curves, plot: int) -> str:
    if curves.aligned_by == "share":
        return "beginning".ljust(plot - 3) + "end"
    line = [" "] * plot
    span = curves.end - curves.start
    numbers = range(max(int(curves.start), 0), int(curves.end))
    first = (curves.first_steps or (0,))[0]
    free = 0
    for number in numbers:
        at = round((number - curves.start) / span * plot)
        word = f"step {first + number}" if number == numbers[0] else str(first + number)
        if at >= free and at + len(word) <= plot:
            line[at : at + len(word)] = word
            free = at + len(word) + 2
    return "".join(line)


def legend(report: Comparison) -> list[Span]:
    """Returns how each trace is drawn."""
    spans: list[Span] = [(_BASE * 2, STYLES[0]), (f" {report.sides[0].letter}   ", "")]
    for number, side in enumerate(report.sides[1:], 1):
        spans += [(side.letter, STYLES[number % len(STYLES)]), ("   " if number + 1 < len(report.sides) else "", "")]
    if len(report.sides) > 2:
        spans.append((f"   {_SEVERAL} {phrase('compare.several')}", ""))
    return spans


def how_aligned(curves: Curves) -> str:
    """Returns how the axes were aligned, in words."""
    if curves.aligned_by == "share":
        return phrase("compare.aligned.share")
    firsts = curves.first_steps or ()
    if len(set(firsts)) > 1:
        return phrase("compare.aligned.first")
    return phrase("compare.aligned.step")
