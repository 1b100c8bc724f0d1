"""The timeline in characters: three overlapping areas, marks above, phases and steps below, the moment as a line.

From the bottom up, the curves are allocated, active (freed, but waiting for a stream), and reserved (free, but not
released to the driver). With colours these are blue, orange and grey, with edges in eighths of a row; without colours
they are ``█``, ``▒`` and ``░``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from memdiag import vocabulary
from memdiag.render.support.chart import scale
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace
from memdiag.trace.schema import PHASES
from memdiag.tui.lines import DIM, HELD, WAITING
from memdiag.tui.models.at_cursor import Places
from memdiag.tui.models.window import CURVES, Window, first_in, heights
from memdiag.units import format_count

LABEL = 9  # columns for "12.5 GiB "
_EDGE = 1  # including one for the axis
_EIGHTHS = " ▁▂▃▄▅▆▇"
GLYPHS = ("█", "▒", "░")
FREE_AREA = "#4e4e4e"
_COLORS = (HELD, WAITING, FREE_AREA)
# A letter for each phase: lower case for events outside a step.
_LETTERS = {"unknown": "·", "initialisation": "i", "forward": "F", "backward": "B", "optimizer": "O", "outside": "-"}
_PHASE_STYLES = {_LETTERS[key]: vocabulary.color("phase", key) for key in ("forward", "backward", "optimizer")}
CURSOR = "reverse"


def plot_width(width: int) -> int:
    """Returns how many columns of a timeline of ``width`` columns show events."""
    return max(width - LABEL - _EDGE, 1)


class Curve:
    """The timeline of one device.

    It caches the areas of the last drawn range: the moment changes more often than the range.
    """

    def __init__(self, device: DeviceTrace, places: Places) -> None:
        self._device = device
        self._places = places
        self._known: tuple[object, _Areas] | None = None

    def draw(self, window: Window, at: int, width: int, rows: int, *, color: bool = False) -> list[Text]:
        """Returns the timeline in ``rows`` lines (at least 3) of ``width`` columns.

        It has marks, curves, and phases with steps.
        """
        plot = plot_width(width)
        if not self._device.num_events:
            return _no_events(width, rows)
        key = (window, plot, rows, color)
        if self._known is None or self._known[0] != key:
            self._known = key, _areas(self._device, window, plot, rows - 2, color=color)
        areas = self._known[1]
        column = window.column_of(at, plot)
        lines = [_labelled("", _marks(self._places, window, at, plot), " ")]
        for level in range(rows - 2, 0, -1):
            cells = areas.cells[level - 1]
            if column >= 0:
                cells = [*cells[:column], areas.cursor(column, level), *cells[column + 1 :]]
            line = Text(no_wrap=True, end="")
            for style, run in groupby(cells, key=itemgetter(1)):
                line.append("".join(glyph for glyph, _ in run), style)
            lines.append(_labelled(areas.ticks.get(level, ""), line, "┤" if level in areas.ticks else "│"))
        lines.append(_labelled(_extent(window), _below(self._device, self._places, window, column, plot), "└"))
        return lines


@dataclass(frozen=True)
class _Areas:
    """The areas in characters.

    ``cells[level - 1][column]`` has the cells, levels from the bottom, ``reached`` the height of each curve in levels,
    and ``ticks`` the axis.
    """

    cells: list[list[tuple[str, str]]]
    reached: list[tuple[float, ...]]
    ticks: dict[int, str]
    color: bool

    def cursor(self, column: int, level: int) -> tuple[str, str]:
        """Returns the cell of the line through the timeline."""
        if self.color:
            return "│", f"bold #ffffff on {_middle(self.reached[column], level)}"
        glyph = self.cells[level - 1][column][0]
        return "│" if glyph == " " else glyph, CURSOR


def _areas(device: DeviceTrace, window: Window, plot: int, levels: int, *, color: bool) -> _Areas:
    high = heights(device, window, plot)
    highest = max(int(values.max(initial=0)) for values in high.values())
    step, unit, unit_bytes, num_ticks = scale(max(highest, 1))
    top = max(highest * 1.02, 1.0)
    ticks: dict[int, str] = {}
    for tick in range(num_ticks, 0, -1):
        row = round(tick * step * unit_bytes / top * levels)
        if 0 < row <= levels and not {row - 1, row + 1} & ticks.keys():
            ticks[row] = f"{step * tick:g} {unit}"
    reached = list(zip(*((high[name] / top * levels).tolist() for name in CURVES), strict=True))
    look = _coloured if color else _plain
    return _Areas([[look(there, level) for there in reached] for level in range(1, levels + 1)], reached, ticks, color)


def _plain(reached: Sequence[float], level: int) -> tuple[str, str]:
    """Returns the character of a cell without colours: the frontmost area in its middle, or an upper edge."""
    for glyph, height in zip(GLYPHS, reached, strict=True):
        if glyph == "█" and level - 1 < height < level and max(reached[1:]) <= height:
            return _EIGHTHS[max(int((height - level + 1) * 8), 1)], ""
        if height >= level - 0.5:
            return glyph, ""
    if level == 1 and max(reached) > 0:  # any value is visible at least in the lowest row
        first = next(number for number, height in enumerate(reached) if height > 0)
        return "▁" if first == 0 else GLYPHS[first], ""
    return " ", ""


def _coloured(reached: Sequence[float], level: int) -> tuple[str, str]:
    """Returns the character of a cell and its colours: the lowest area in eighths, in front of the area above it."""
    for color, height in zip(_COLORS, reached, strict=True):
        if height > level - 1:
            eighths = min(round((height - level + 1) * 8), 8)
            if level == 1:
                eighths = max(eighths, 1)
            if eighths == 8:
                return ("█", color) if color != FREE_AREA else (" ", f"on {color}")
            above = next(
                (other for other, far in zip(_COLORS, reached, strict=True) if far >= level - 0.5 and far > height), ""
            )
            if not eighths:
                return " ", f"on {above}" if above else ""
            return _EIGHTHS[eighths], f"{color} on {above}" if above else color
    return " ", ""


def _middle(reached: Sequence[float], level: int) -> str:
    """Returns the colour of the area in the middle of a cell."""
    return next((color for color, height in zip(_COLORS, reached, strict=True) if height >= level - 0.5), "default")


def _marks(places: Places, window: Window, at: int, plot: int) -> Text:
    """Returns the line above the curves: ``▼`` the peak, ``!`` out of memory, ``r`` a retry, ``│`` the moment."""
    glyphs = [" "] * plot
    for events, glyph in ((places.retries, "r"), (places.ooms, "!")):
        for column in (first_in(events, window, plot) >= 0).nonzero()[0].tolist():
            glyphs[column] = glyph
    if (column := window.column_of(places.peak, plot)) >= 0:
        glyphs[column] = "!" if glyphs[column] == "!" else "▼"
    line = Text("".join(glyphs), no_wrap=True, end="")
    for column, glyph in enumerate(glyphs):
        if glyph != " ":
            line.stylize(f"bold {vocabulary.FAILURE}" if glyph == "!" else "bold", column, column + 1)
    if (column := window.column_of(at, plot)) >= 0:
        if glyphs[column] == " ":
            line = Text.assemble(line[:column], "│", line[column + 1 :], no_wrap=True, end="")
        line.stylize(CURSOR, column, column + 1)
    return line


def _below(device: DeviceTrace, places: Places, window: Window, column: int, plot: int) -> Text:
    """Returns the line below: a letter for the phase of each column, if known, and step numbers at their beginnings."""
    line = Text(no_wrap=True, end="")
    if not places.has_phases:
        letters = ["─"] * plot
    else:
        edges = window.edges(plot)[:-1]
        letters = [_LETTERS[PHASES[phase]] for phase in device.events.phase[edges].tolist()]
    begins = first_in(places.steps, window, plot)
    number = 0
    while number < plot:
        if begins[number] >= 0:
            label = "|" + str(int(device.events.step[places.steps[begins[number]]]))
            label = label[: plot - number]
            line.append(label, "bold")
            number += len(label)
        else:
            line.append(letters[number], _PHASE_STYLES.get(letters[number], DIM))
            number += 1
    if column >= 0:
        line.stylize(CURSOR, column, column + 1)
    return line


def _extent(window: Window) -> str:
    share = len(window) / max(window.num_events, 1)
    return (
        phrase("screen.whole")
        if share == 1
        else f"{share:.1%}"
        if share >= 0.001
        else f"1/{format_count(round(1 / share))}"
    )


def _labelled(label: str, line: Text, edge: str) -> Text:
    return Text.assemble((" " * (LABEL - 1 - cell_len(label)) + f"{label} {edge}", DIM), line, no_wrap=True, end="")


def _no_events(width: int, rows: int) -> list[Text]:
    said = (phrase("screen.no-events"), phrase("screen.no-events.lists"))
    centred = [" " * max((width - cell_len(line)) // 2, 0) + line for line in said]
    lines = [Text(set_cell_size(line, width), style=DIM, no_wrap=True, end="") for line in centred]
    return [*[Text()] * max((rows - 2) // 2, 0), *lines, *[Text()] * rows][:rows]
