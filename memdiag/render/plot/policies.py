"""Reserved memory of one run under several policies and settings, with the recorded run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdiag.render.plot.marks import capacity_room, draw_capacity, draw_events, event_handles, top_of
from memdiag.render.plot.page import PlotPage
from memdiag.render.plot.sheet import Sign
from memdiag.render.plot.style import Fill, PlotLook, lines
from memdiag.text import phrase
from memdiag.units import format_bytes
from memdiag.vocabulary import FAILURE

if TYPE_CHECKING:
    from memdiag.results.plots import PoliciesPlot, SimulatedCurve

SIZE = (10.0, 5.6)
_LIVE = {"light": Fill("#dedede"), "dark": Fill("#3a3f46")}


def render(data: PoliciesPlot, look: PlotLook) -> PlotPage:
    """Draws one line per run, in front of the allocated memory of the recorded run."""
    from matplotlib.lines import Line2D

    highest = max(data.recorded_peak or 0, *(run.peak_bytes for run in data.runs))
    page = PlotPage(look, SIZE, phrase("plots.title.policies"), data.frame, right=capacity_room(data.frame, highest))
    styles = lines()
    signs: list[Sign] = []
    if data.recorded is not None:
        signs.append(
            (
                Line2D([], [], color=page.theme.ink, linewidth=2.4),
                phrase("plots.recorded.peak", bytes=format_bytes(data.recorded_peak)),
            )
        )
    signs += [
        (Line2D([], [], color=color, linestyle=dashes, linewidth=1.8), _words(run))
        for run, (color, dashes) in zip(data.runs, styles, strict=False)
    ]
    rest: list[Sign] = []
    if data.allocated is not None:
        rest.append((page.patch(_LIVE[look.style]), phrase("plots.recorded.allocated")))
    if any(run.failed_at is not None for run in data.runs):
        rest.append(
            (Line2D([], [], linestyle="none", marker="D", markersize=5.5, color=FAILURE), phrase("plots.simulated.oom"))
        )
    page.foot(signs, [*rest, *event_handles(data.frame, recorded=True)], page.phase_handles())
    (axes,) = page.panels([1])
    page.bytes_axis(axes, top_of(data.frame, highest), room_above=0.12)
    if data.allocated is not None:
        page.area(axes, data.allocated.at, data.allocated.bytes, _LIVE[look.style], 1.5)
    if data.recorded is not None:
        page.line(axes, data.recorded.at, data.recorded.bytes, page.theme.ink, width=2.4, zorder=4)
    for number, (run, (color, dashes)) in enumerate(zip(data.runs, styles, strict=False)):
        page.line(axes, run.reserved.at, run.reserved.bytes, color, dashes, 1.6, 5 + number / 100)
        if run.failed_at is not None:
            before = [
                value for at, value in zip(run.reserved.at, run.reserved.bytes, strict=True) if at <= run.failed_at
            ]
            height = before[-1] if before else 0
            axes.plot(
                [run.failed_at],
                [height],
                marker="D",
                markersize=6,
                color=FAILURE,
                markeredgecolor=page.theme.paper,
                zorder=6,
            )
    draw_capacity(page, axes)
    draw_events(page, axes)
    return page


def _words(run: SimulatedCurve) -> str:
    words = phrase("plots.named", name=run.label, bytes=format_bytes(run.peak_bytes))
    if run.saved_bytes:
        amount = format_bytes(abs(run.saved_bytes))
        words = phrase("plots.run.less" if run.saved_bytes > 0 else "plots.run.more", run=words, bytes=amount)
    return phrase("plots.run.oom", run=words) if run.num_failed else words
