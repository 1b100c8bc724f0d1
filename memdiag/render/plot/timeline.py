"""Reserved, active and allocated memory over a run, with phases, steps, retries, failures and the device size."""

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
from memdiag.render.plot.page import PlotPage
from memdiag.render.plot.sheet import Sign
from memdiag.render.plot.style import Fill, PlotLook, fills
from memdiag.text import phrase
from memdiag.vocabulary import GREY

if TYPE_CHECKING:
    from memdiag.results.plots import TimelinePlot

SIZE = (10.0, 5.2)
FREE, PENDING, LIVE = Fill(GREY, "////", is_line=True), fills("curve")["active"], fills("curve")["allocated"]


def render(data: TimelinePlot, look: PlotLook) -> PlotPage:
    """Draws the curves as overlapping areas: reserved and free, waiting for a stream, allocated."""
    page = PlotPage(
        look, SIZE, phrase("plots.title.timeline"), data.frame, right=capacity_room(data.frame, data.moment.highest)
    )
    page.foot([*_legend(data, page), *event_handles(data.frame)], page.phase_handles())
    (axes,) = page.panels([1])
    page.bytes_axis(axes, top_of(data.frame, data.moment.highest), room_above=PEAK_ROOM)
    if data.reserved is not None:
        if data.allocated is not None:
            page.area(axes, data.reserved.at, data.reserved.bytes, FREE, 2)
        page.line(axes, data.reserved.at, data.reserved.bytes, page.theme.ink)
    if data.active is not None:
        page.area(axes, data.active.at, data.active.bytes, PENDING, 2.2)
    if data.allocated is not None:
        page.area(axes, data.allocated.at, data.allocated.bytes, LIVE, 2.4)
    draw_capacity(page, axes)
    draw_events(page, axes)
    draw_moment(page, axes, data.moment)
    return page


def _legend(data: TimelinePlot, page: PlotPage) -> list[Sign]:
    from matplotlib.lines import Line2D

    known = [
        (data.reserved, Line2D([], [], color=page.theme.ink, linewidth=1.6), phrase("plots.curve.reserved")),
        (data.reserved if data.allocated is not None else None, page.patch(FREE), phrase("plots.curve.free")),
        (data.active, page.patch(PENDING), phrase("plots.waiting")),
        (data.allocated, page.patch(LIVE), phrase("plots.curve.allocated")),
    ]
    return [(handle, label) for curve, handle, label in known if curve is not None]
