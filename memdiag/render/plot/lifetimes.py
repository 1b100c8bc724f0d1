"""Live memory over a run by lifetime of its tensors, with the amounts at the moment of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdiag.render.plot.marks import draw_events, event_handles
from memdiag.render.plot.page import PlotPage, stacked
from memdiag.render.plot.style import PlotLook, fills
from memdiag.text import language, phrase
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from memdiag.results.plots import LifetimesPlot


SIZE = (10.0, 5.4)
FILLS = fills("lifetime")
_BESIDE = 2.75  # inches: the bar of the moment and the names
_BAR = 0.32
_EDGE = 0.12  # right of the panel of a narrow page
_GAP = 0.2
_LINE = 0.36  # inches between two names
_TWO_LINES = 0.27  # inches that a name of two lines needs


def render(data: LifetimesPlot, look: PlotLook) -> PlotPage:
    """Draws the layers, with the name of each next to the bar."""
    page = PlotPage(look, SIZE, phrase("plots.title.lifetimes"), data.frame, right=_BESIDE, grey_phases=True)
    if page.compact:  # no room for a bar with names to the right of the panel: they are below it
        page.right = _EDGE
        signs = [
            (page.patch(FILLS[layer.key]), phrase("plots.named", name=layer.name, bytes=format_bytes(layer.at_moment)))
            for layer in reversed(data.layers)
        ]
    else:
        signs = []
    page.foot(signs, event_handles(data.frame), page.phase_handles())
    (axes,) = page.panels([1])
    nothing = (0,) * len(data.at)
    total = nothing
    for layer in data.layers:
        total = stacked(total, layer.bytes)
    highest = max(*total, 1)
    page.bytes_axis(axes, highest, room_above=0.12)
    base = nothing
    for layer in data.layers:
        above = stacked(base, layer.bytes)
        page.area(axes, data.at, above, FILLS[layer.key], below=base)
        base = above
    draw_events(page, axes)
    axes.axvline(max(data.moment.at, 0), color=page.theme.ink, linewidth=1, linestyle=(0, (7, 3)), zorder=6)
    if not page.compact:
        _beside(page, axes, data)
    return page


def _beside(page: PlotPage, axes: Axes, data: LifetimesPlot) -> None:
    """Draws the bar of the moment and, to its right, the name of each layer in the order of the stack."""
    from matplotlib.patches import Rectangle

    bar = page.beside(axes, _GAP, _BAR)
    bar.set_xlim(0, 1)
    bar.set_ylim(axes.get_ylim())
    bar.axis("off")
    base = 0
    for layer in data.layers:
        bar.bar([0.5], [layer.at_moment], 1, bottom=base, **page.paint(FILLS[layer.key]))
        base += layer.at_moment
    names = page.beside(axes, _GAP + _BAR + 0.15, _BESIDE - _GAP - _BAR - 0.15)
    wide, high = (
        size * inches for size, inches in zip(names.get_position().size, (page.width, page.height), strict=True)
    )
    names.set_xlim(0, wide)
    names.set_ylim(0, high)
    names.axis("off")
    line = min(_LINE, high / len(data.layers))
    is_roomy = line >= _TWO_LINES
    for number, layer in enumerate(data.layers):
        y = line * (number + 0.5)
        amount = format_bytes(layer.at_moment)
        words = (
            f"{page.text(layer.name)}\n{amount}{_share(layer.at_moment, base)}"
            if is_roomy
            else phrase("plots.named", name=layer.name, bytes=amount)
        )
        names.add_patch(Rectangle((0, y - 0.07), 0.22, 0.14, **page.paint(FILLS[layer.key])))
        names.text(
            0.3,
            y,
            words,
            ha="left",
            va="center",
            fontsize=7.5 if is_roomy else 6,
            linespacing=1.15,
            color=page.theme.ink,
        )
    opening = "\uff08" if language() == "zh" else " ("
    where, _, details = page.text(data.moment.place).partition(opening)
    title = page.text(phrase("plots.moment", title=data.moment.title, place=where))
    bar.annotate(
        title + (f"\n{opening.strip()}{details}" if details else ""),
        (0, 0),
        xycoords="axes fraction",
        xytext=(0, -5),
        textcoords="offset points",
        ha="left",
        va="top",
        fontsize=7.5,
        color=page.theme.muted,
        annotation_clip=False,
    )


def _share(part: int, whole: int) -> str:
    if not part or not whole:
        return ""
    return f" ({part / whole:.0%})" if part / whole >= 0.01 else " (< 1%)"
