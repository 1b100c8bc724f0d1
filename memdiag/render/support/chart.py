"""A chart of memory over the trace in characters: three overlapping areas, readable without colour.

From the bottom up, the curves are ``█`` allocated, ``▒`` active (freed, but waiting for a stream), and ``░`` reserved
(free, but not released to the driver).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from memdiag import vocabulary
from memdiag.render.support.line import StyledText, cells
from memdiag.render.support.words import at_words
from memdiag.results.report import DeviceReport, Peak, Timeline
from memdiag.text import phrase
from memdiag.units import GIB, KIB, MIB, TIB, format_bytes, format_count

AREAS = tuple(
    (vocabulary.STYLES["curve"][key].glyph, vocabulary.ansi("curve", key), key)
    for key in ("allocated", "active", "reserved")
)
_LABEL = 9  # columns for "12.5 GiB "
_UNITS = ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B"))
_STEPS = (0.2, 0.25, 0.5, 1, 2, 2.5, 5, 10, 20, 25, 50, 100, 200, 250, 500)


def scale(highest: int) -> tuple[float, str, int, int]:
    """Returns the ticks of the y axis for a curve of at most ``highest`` bytes.

    Returns:
        The distance of two ticks in the unit, the unit, its bytes, and the number of ticks above 0 (at most 5).
    """
    unit, name = next((known for known in _UNITS if highest >= known[0]), _UNITS[-1])
    step = next((step for step in _STEPS if highest <= 5 * step * unit), 1000)
    while highest > 5 * step * unit:
        step *= 10
    return step, name, unit, max(1, math.ceil(highest / (step * unit)))


def columns(values: Sequence[int], width: int) -> list[int]:
    """Returns ``values`` (one per bucket) as ``width`` columns, the highest bucket in each.

    Unknown (-1) remains below 0.
    """
    num = len(values)
    return [max(values[c * num // width : max(c * num // width + 1, -(-(c + 1) * num // width))]) for c in range(width)]


def chart(device: DeviceReport, width: int) -> list[StyledText]:
    """Returns the lines of the chart of one device, at most ``width`` columns wide; [] without a curve."""
    timeline = device.timeline
    if timeline is None:
        return []
    curves = [values for values in (timeline.allocated, timeline.active, timeline.reserved) if values]
    highest = max((max(values) for values in curves), default=0)
    if highest <= 0:
        return []
    plot = max(width - _LABEL - 1, 20)
    step, unit, unit_bytes, num_ticks = scale(highest)
    per_tick = {1: 10, 2: 5, 3: 4, 4: 3, 5: 2}[num_ticks]
    rows = per_tick * num_ticks
    top = num_ticks * step * unit_bytes
    areas = [
        columns(values, plot) if values else [-1] * plot
        for values in (timeline.allocated, timeline.active, timeline.reserved)
    ]
    lines = []
    if (mark := _peak_mark(device, timeline, plot)) is not None:
        lines.append(mark)
    for row in range(rows, 0, -1):
        tick = row % per_tick == 0
        label = f"{step * row / per_tick:g} {unit}" if tick else ""
        line = StyledText().append(f"{label:>{_LABEL - 1}} " + ("┤" if tick else "│"), "dim")
        level = (row - 0.5) / rows * top if row > 1 else 1  # any value is visible at least in the lowest row
        _fill(line, areas, level)
        lines.append(line)
    lines.append(StyledText(f"{'0':>{_LABEL - 1}} └" + "─" * plot, "dim"))
    lines.append(_events_axis(timeline, plot))
    if (moment := _moment_mark(device, timeline, plot)) is not None:
        lines.append(moment)
    lines.append(_legend(areas))
    return lines


def _fill(line: StyledText, areas: list[list[int]], level: float) -> None:
    """Appends one row of the plot: in each column the frontmost area that reaches ``level``."""
    for heights in zip(*areas, strict=True):
        glyph, style = " ", ""
        for (area, color, _), height in zip(AREAS, heights, strict=True):
            if height >= level:
                glyph, style = area, color
                break
        line.append(glyph, style)


def _column_of(event: int, timeline: Timeline, plot: int) -> int:
    num_events = timeline.events_per_bucket * max(len(timeline.reserved), len(timeline.allocated), 1)
    return min(max(int(event * plot / max(num_events, 1)), 0), plot - 1)


def _peak_mark(device: DeviceReport, timeline: Timeline, plot: int) -> StyledText | None:
    here = device.moment
    peak: Peak = here if here is not None and here.kind in {"peak", "reserved"} else device.peak
    value, what = peak.reserved_bytes, "reserved"
    if value is None:
        peak, value, what = device.peak_allocated, device.peak_allocated.allocated_bytes, "allocated"
    if value is None or peak.at_event is None:
        return None
    title = vocabulary.title("peak" if peak is here or here is None else what)
    label = phrase(f"report.chart.{what}", title=title, bytes=format_bytes(value), event=at_words(peak))
    return _mark("▼", label, _column_of(peak.at_event, timeline, plot), plot, "bold")


def _moment_mark(device: DeviceReport, timeline: Timeline, plot: int) -> StyledText | None:
    here = device.moment
    if here is None or here.at_event is None or here.kind in {"peak", "reserved"}:
        return None
    label = phrase("report.chart.moment", title=vocabulary.title(here.kind), event=at_words(here))
    return _mark("▲", label, _column_of(here.at_event, timeline, plot), plot, "bold")


def _mark(glyph: str, label: str, column: int, plot: int, style: str) -> StyledText:
    """Returns a pointer at a column of the plot, with its label on the side that has room."""
    if column + 2 + cells(label) <= plot:
        body = " " * column + f"{glyph} {label}"
    else:
        body = " " * (column - 1 - cells(label)) + f"{label} {glyph}"
    return StyledText(" " * (_LABEL + 1) + body, style)


def _events_axis(timeline: Timeline, plot: int) -> StyledText:
    num_events = round(
        timeline.events_per_bucket * max(len(timeline.reserved), len(timeline.allocated), len(timeline.active))
    )
    left, middle, right = "0", format_count(num_events // 2), phrase("report.events", count=num_events)
    line = left.ljust(plot // 2 - len(middle) // 2) + middle
    return StyledText(" " * (_LABEL + 1) + line.ljust(plot - cells(right)) + right, "dim")


def _legend(areas: list[list[int]]) -> StyledText:
    shown = [area for area, heights in zip(AREAS, areas, strict=True) if max(heights) >= 0]
    names: list[str] = [phrase(f"report.area.{key}") for _, _, key in shown]
    if sum(cells(name) + 5 for name in names) - 3 > len(areas[0]):
        names = [vocabulary.name("curve", key) for _, _, key in shown]
    line = StyledText(" " * (_LABEL + 1))
    for number, ((glyph, color, _), name) in enumerate(zip(shown, names, strict=True), 1):
        line.append(glyph, color).append(f" {name}" + ("   " if number < len(shown) else ""))
    return line
