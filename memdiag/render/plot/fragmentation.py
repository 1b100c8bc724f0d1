"""Composition of reserved memory over a run: all of it above, and only reserved - requested below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdiag.render.plot.marks import (
    PEAK_ROOM,
    capacity_room,
    draw_capacity,
    draw_events,
    draw_moment,
    event_handles,
    top_of,
)
from memdiag.render.plot.page import PlotPage, stacked
from memdiag.render.plot.sheet import Sign
from memdiag.render.plot.style import PlotLook, fills
from memdiag.text import phrase
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from memdiag.results.plots import FragmentationPlot, Numbers


SIZE = (10.0, 6.6)
# Usable free memory has the colour of the paper.
FILLS = {**fills("part"), "cache": fills("part")["cache"]._replace(is_line=True)}


def render(data: FragmentationPlot, look: PlotLook) -> PlotPage:
    """Draws both panels."""
    page = PlotPage(
        look,
        SIZE,
        phrase("plots.title.fragmentation"),
        data.frame,
        right=capacity_room(data.frame, data.moment.highest),
    )
    there = [name for name, values in data.parts.items() if any(values)]
    signs: list[Sign] = [
        (
            page.patch(FILLS["requested"]),
            phrase("plots.part.requested", bytes=format_bytes(data.at_moment["requested"])),
        )
    ]
    signs += [
        (page.patch(FILLS[name]), phrase(f"plots.part.{name}", bytes=format_bytes(data.at_moment[name])))
        for name in there
    ]
    page.foot(signs, event_handles(data.frame), page.phase_handles())
    whole, rest = page.panels([1.25, 1])
    page.bytes_axis(whole, top_of(data.frame, data.moment.highest), room_above=PEAK_ROOM)
    nothing = (0,) * len(data.at)
    beyond = nothing
    for name in there:
        beyond = stacked(beyond, data.parts[name])
    highest = max(*beyond, 1)
    page.bytes_axis(rest, highest, room_above=0.26)
    page.area(whole, data.at, data.requested, FILLS["requested"])
    _stack(page, whole, data, there, data.requested)
    _stack(page, rest, data, there, nothing)
    page.line(whole, data.at, stacked(data.requested, beyond), page.theme.ink, width=1.1)
    page.line(rest, data.at, beyond, page.theme.muted, width=0.5)
    draw_capacity(page, whole)
    draw_events(page, rest)
    draw_moment(page, whole, data.moment)
    page.name_panel(rest, phrase("plots.beyond"))
    return page


def _stack(page: PlotPage, axes: Axes, data: FragmentationPlot, names: list[str], base: Numbers) -> None:
    for name in names:
        above = stacked(base, data.parts[name])
        page.area(axes, data.at, above, FILLS[name], below=base)
        base = above
