"""The memory of a card over time: stacked parts that, with free memory above them, sum to the card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdiag import vocabulary
from memdiag.render.plot.page import PlotPage, stacked
from memdiag.render.plot.sheet import Sign
from memdiag.render.plot.style import Fill, PlotLook, fills
from memdiag.text import phrase
from memdiag.units import format_bytes
from memdiag.vocabulary import FAILURE, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from memdiag.results.plots import CardPlot, Numbers

SIZE = (10.0, 5.2)
FILLS = fills("card")
FREE = Fill(GREY, "..", is_line=True)  # of the colour of the paper, as nobody uses it
_ROOM = 0.12  # inches above the line of the card
_MS = 1000


def render(data: CardPlot, look: PlotLook) -> PlotPage:
    """Draws the parts over seconds, with the fullest moment and failures."""
    page = PlotPage(look, SIZE, phrase("plots.title.card"), data.frame, grey_phases=True)
    page.foot(_legend(data, page))
    (axes,) = page.panels([1], with_time=False)
    page.bytes_axis(axes, data.total_bytes, room_above=_ROOM)
    base: Numbers = (0,) * len(data.at_ms)
    for name, sizes in data.parts.items():
        above = stacked(base, sizes)
        _area(page, axes, data, above, base, FILLS[name])
        base = above
    _area(page, axes, data, stacked(base, data.free), base, FREE)
    axes.axhline(data.total_bytes, color=page.theme.ink, linewidth=1.1, zorder=5)
    axes.axvline(data.fullest_ms / _MS, color=page.theme.ink, linewidth=1, linestyle=(0, (7, 3)), zorder=6)
    for at in data.failures_ms:
        axes.axvline(at / _MS, color=FAILURE, linewidth=1.2, zorder=6)
    axes.set_xlim(0, _end(data) / _MS)
    axes.set_xlabel(phrase("plots.axis.seconds"), loc="right", fontsize=page.points(8.5))
    return page


def _end(data: CardPlot) -> int:
    """Returns the milliseconds at which the axis ends: the last sample is visible, too."""
    return data.at_ms[-1] + max(data.at_ms[-1] // 100, 1)


def _area(page: PlotPage, axes: Axes, data: CardPlot, above: Numbers, below: Numbers, fill: Fill) -> None:
    x = [at / _MS for at in (*data.at_ms, _end(data))]
    axes.fill_between(x, [*above, above[-1]], [*below, below[-1]], step="post", zorder=2, **page.paint(fill))


def _legend(data: CardPlot, page: PlotPage) -> list[Sign]:
    """Returns the parts with their bytes at the fullest moment, from the top of the stack down."""
    from matplotlib.lines import Line2D

    def named(name: str, key: str) -> str:
        text: str = phrase("plots.named", name=name, bytes=format_bytes(data.at_fullest[key]))
        return text

    signs: list[Sign] = [(page.patch(FREE), named(phrase("report.card-time.free"), "free"))]
    signs += [
        (page.patch(FILLS[name]), named(vocabulary.name("card", name), name)) for name in reversed(tuple(data.parts))
    ]
    seconds = f"{data.fullest_ms / _MS:.1f}"
    dashes = Line2D([], [], color=page.theme.ink, linewidth=1, linestyle=(0, (7, 3)))
    signs.append((dashes, phrase("plots.card.fullest", seconds=seconds)))
    if data.failures_ms:
        failed = Line2D([], [], color=FAILURE, linewidth=1.2)
        signs.append((failed, phrase("plots.event.oom")))
    return signs
