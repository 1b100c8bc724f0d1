"""Single events on a panel: the moment of the report with its text, retries, failures, and the device size."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memdiag.render.plot.page import PlotPage
from memdiag.render.plot.sheet import Sign
from memdiag.text import phrase
from memdiag.units import format_bytes
from memdiag.vocabulary import FAILURE, RETRY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from memdiag.results.plots import PlotFrame, PlotMark


PEAK_ROOM = 0.3  # inches above everything for the text about the peak
_FAR = 1.6  # times the peak: a device larger than this would flatten the curves
_MOST_LINES = 20  # number of failure lines across the panel


class _Kind(NamedTuple):
    """How one kind of event is drawn, and the end of its keys ``plots.event.…``."""

    marker: str
    color: str
    name: str


_RETRY = _Kind("^", RETRY, "retry")
_OOM = _Kind("X", FAILURE, "oom")


def top_of(frame: PlotFrame, highest: int) -> int:
    """Returns the upper limit of the axis: the device's size if that leaves room for the curves."""
    return max(highest, 1, (frame.capacity_bytes or 0) if _shows_capacity(frame, highest) else 0)


def capacity_room(frame: PlotFrame, highest: int) -> float:
    """Returns the inches to the right of a panel for the label of the device's line."""
    return 0.85 if _shows_capacity(frame, highest) else 0.3


def _shows_capacity(frame: PlotFrame, highest: int) -> bool:
    return frame.capacity_bytes is not None and frame.capacity_bytes <= _FAR * max(highest, 1)


def draw_capacity(page: PlotPage, axes: Axes) -> None:
    """Draws the size of the device as a line with a label, unless it is above the panel."""
    capacity = page.frame.capacity_bytes
    if capacity is None or capacity > axes.get_ylim()[1]:
        return
    axes.axhline(capacity, color=page.theme.ink, linewidth=1.1, linestyle=(0, (7, 3)), zorder=4)
    axes.annotate(
        f"{phrase('plots.capacity')}\n{format_bytes(capacity)}",
        (1, capacity),
        xycoords=axes.get_yaxis_transform(),
        xytext=(3 if page.compact else 5, 0),
        textcoords="offset points",
        ha="left",
        va="center",
        fontsize=page.points(7.5),
        color=page.theme.ink,
        annotation_clip=False,
    )


def draw_moment(page: PlotPage, axes: Axes, moment: PlotMark) -> None:
    """Draws the moment of the report as a point, with its text above all curves."""
    x = max(moment.at, 0)
    share = x / max(page.frame.num_events, 1)
    side = "left" if share < 0.4 else "right" if share > 0.6 else "center"
    words = moment.amount if page.compact else phrase("plots.moment", title=moment.amount, place=moment.place)
    axes.annotate(
        page.text(phrase("plots.mark", title=moment.title, words=words)),
        (x, moment.bytes),
        xycoords="data",
        xytext=(x, 0.99),
        textcoords=axes.get_xaxis_transform(),
        ha=side,
        va="top",
        fontsize=page.points(8.5),
        color=page.theme.ink,
        zorder=8,
        annotation_clip=False,
        arrowprops={
            "arrowstyle": "-",
            "color": page.theme.muted,
            "linewidth": 0.8,
            "shrinkA": 1,
            "shrinkB": 2,
            "relpos": ({"left": 0.0, "right": 1.0}.get(side, 0.5), 0.0),
        },
        bbox={"boxstyle": "square,pad=0.15", "facecolor": page.theme.paper, "edgecolor": "none", "alpha": 0.85},
    )
    axes.plot(
        [x],
        [moment.bytes],
        marker="o",
        markersize=5,
        color=page.theme.ink,
        markeredgecolor=page.theme.paper,
        zorder=7,
        clip_on=False,
    )


def event_handles(frame: PlotFrame, *, recorded: bool = False) -> list[Sign]:
    """Returns the legend entries of retries and failures; ``recorded``: marked as those of the recorded run."""
    from matplotlib.lines import Line2D

    found: list[Sign] = []
    for sign, events in ((_RETRY, frame.retries), (_OOM, frame.ooms)):
        if events:
            name = phrase(f"plots.event.{sign.name}" + (".times" if len(events) > 1 else ""), count=len(events))
            if sign is _OOM and len(events) == 1 and frame.asked_bytes > 0:
                name = phrase("plots.event.oom.bytes", bytes=format_bytes(frame.asked_bytes))
            name = phrase("plots.recorded", name=name) if recorded else name
            found.append((Line2D([], [], linestyle="none", marker=sign.marker, markersize=7, color=sign.color), name))
    return found


def draw_events(page: PlotPage, axes: Axes) -> None:
    """Draws retries and failures at the foot of a panel.

    Unless there are many failures, each also gets a line across the panel.
    """
    for sign, events in ((_RETRY, page.frame.retries), (_OOM, page.frame.ooms)):
        if not events:
            continue
        axes.plot(
            events,
            [0.035] * len(events),
            linestyle="none",
            marker=sign.marker,
            markersize=7.5,
            color=sign.color,
            markeredgecolor=page.theme.paper,
            markeredgewidth=0.7,
            transform=axes.get_xaxis_transform(),
            zorder=6,
            clip_on=False,
        )
        if sign is _OOM and len(events) <= _MOST_LINES:
            for at in events:
                axes.axvline(at, color=sign.color, linewidth=1, zorder=3)
