"""The memory of a device at one moment: segments as rows, blocks by lifetime of their tensors, free memory by cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdiag.render.plot.lifetimes import FILLS
from memdiag.render.plot.page import PlotPage
from memdiag.render.plot.style import Fill, PlotLook, fills, scale_for
from memdiag.text import phrase
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from memdiag.results.plots import MapPlot


SIZE = (10.0, 6.6)
KINDS = {
    **FILLS,
    **{
        key: Fill(fill.color, fill.hatch, is_line=True)
        for key, fill in fills("part").items()
        if key not in ("requested", "rounding")
    },
}
_NAMES = 1.55  # inches: the pool names, left of the rows
_FEW_NAMES = 0.85  # on a narrow page
_FILLED = 0.78  # of the height of a row; the rest is empty
_HIGHEST = 0.3  # inches of a row
_MOST_SIGNS = 18  # of a line of text
_FEW_SIGNS = 15  # on a narrow page
_LINE = 0.125  # inches of a line of text


def render(data: MapPlot, look: PlotLook) -> PlotPage:
    """Draws the rows."""
    from matplotlib.collections import PolyCollection

    high = min(SIZE[1], 2.1 + _HIGHEST * len(data.rows))
    page = PlotPage(look, (SIZE[0], max(high, 3.2)), phrase("plots.title.map"), data.frame, left=_NAMES)
    page.foot(
        [
            (page.patch(KINDS[kind]), phrase("plots.named", name=name, bytes=format_bytes(amount)))
            for kind, name, amount in data.amounts
        ]
    )
    if page.compact:
        page.left = _FEW_NAMES
    (axes,) = page.panels([1], with_time=False)
    page.wanted = min(_HIGHEST * 0.6 * len(data.rows) + 0.2, 0.9 * page.width)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xlim(0, data.row_bytes)
    axes.set_ylim(len(data.rows), 0)
    for kind, pieces in data.pieces.items():
        boxes = [_box(row, start, size) for row, start, size in pieces]
        if boxes:
            axes.add_collection(PolyCollection(boxes, **page.paint(KINDS[kind]), zorder=2), autolim=False)
    outlines = [_box(number, low, high - low) for number, row in enumerate(data.rows) for low, high in row.segments]
    axes.add_collection(
        PolyCollection(outlines, facecolor="none", edgecolor=page.theme.muted, linewidth=0.5, zorder=3), autolim=False
    )
    _axes(page, axes, data)
    return page


def _box(row: int, start: int, size: int) -> list[tuple[float, float]]:
    top, bottom = row + (1 - _FILLED) / 2, row + (1 + _FILLED) / 2
    return [(start, top), (start + size, top), (start + size, bottom), (start, bottom)]


def _axes(page: PlotPage, axes: Axes, data: MapPlot) -> None:
    """Writes pool names to the left of their first rows, if there is room, and adds the scale of the rows."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    axes.yaxis.set_visible(False)
    row_high = axes.get_position().height * page.height / len(data.rows)
    free_from = -1.0
    for number, row in enumerate(data.rows):
        if not row.name or number * row_high < free_from:
            continue
        room = (
            next((n for n, other in enumerate(data.rows[number + 1 :], 1) if other.name), len(data.rows) - number)
            * row_high
        )
        shown = row.name[: max(int(room / _LINE), 1)]
        signs = _FEW_SIGNS if page.compact else _MOST_SIGNS
        axes.annotate(
            "\n".join(page.text(line, signs) for line in shown),
            (0, number + (1 - _FILLED) / 2),
            xycoords=axes.get_yaxis_transform(),
            xytext=(-(page.left - page.edge) * 72, 0),
            textcoords="offset points",
            ha="left",
            va="top",
            fontsize=page.points(7.5),
            color=page.theme.ink,
            annotation_clip=False,
            linespacing=1.15,
        )
        free_from = number * row_high + len(shown) * _LINE
    scale = scale_for(data.row_bytes, 4 if page.compact else 8)
    step = scale.step * scale.unit_bytes
    axes.xaxis.set_major_locator(
        FixedLocator([number * step for number in range(int(data.row_bytes / step + 0.001) + 1)])
    )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: scale.label(value)))
    axes.set_xlabel(phrase("plots.axis.row", unit=scale.unit), loc="right", fontsize=page.points(8.5))
    axes.tick_params(axis="x", length=3)
