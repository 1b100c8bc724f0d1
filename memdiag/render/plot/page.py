"""The page of a plot: panels with their axes, curves and areas; and the image as bytes.

Everything around the panels is measured before they are placed, so that nothing overlaps at any size. The same input
gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import add
from typing import TYPE_CHECKING, Any

from memdiag import vocabulary
from memdiag.errors import MemdiagError
from memdiag.render.plot.sheet import POINTS_PER_INCH, Sheet, Sign, words_of
from memdiag.render.plot.style import Fill, PlotLook, drawn_language, fonts_for, scale_for, settings
from memdiag.render.support.line import cells
from memdiag.text import phrase, speaking
from memdiag.units import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from memdiag.results.plots import Numbers


FORMS = ("png", "svg", "pdf")
_LEAST = 0.6  # inches of a panel
_TALL = 20.0  # inches of a page that has room for everything
_TICK = 0.24  # minimum inches of a tick on the axis of bytes
_STRIP = 0.16  # inches: the band of phases


class PlotPage(Sheet):
    """A sheet with panels, their axes, and curves and areas on them."""

    def panels(self, shares: Sequence[float], *, with_time: bool = True) -> list[Axes]:
        """Returns panels, one above the other, with these fractions of the remaining room.

        Args:
            shares: Fraction of each panel.
            with_time: Whether they share an axis of events, with phases below the lowest, and steps above the highest.

        Raises:
            MemdiagError: There is too little room.
        """
        above = (0.2 if self.compact else 0.3) if with_time and self.frame.steps else 0.12
        below = (0.28 if self.compact else 0.36) + (_STRIP + 0.05 if with_time and self.frame.bands else 0.0)
        top, bottom = self.top - above, self.bottom + below
        between = 0.14
        room = top - bottom - between * (len(shares) - 1)
        self.room, self.wanted = room, max(self.width * 0.45 * len(shares) ** 0.5, 1.0 * len(shares))
        if room * min(shares) / sum(shares) < _LEAST or self.width - self.left - self.right < 2 * _LEAST:
            short = max(_LEAST * sum(shares) / min(shares) - room, 0.0)
            least = f"{max(self.width, self.left + self.right + 2 * _LEAST):.1f}x{self.height + short + 0.1:.1f}"
            raise MemdiagError(
                phrase("errors.plot-room", width=f"{self.width:g}", height=f"{self.height:g}"),
                phrase("errors.plot-room.hint", least=str(least)),
            )
        axes: list[Axes] = []
        for share in shares:
            high = room * share / sum(shares)
            axes.append(
                self._axes(
                    self.left,
                    top - high,
                    self.width - self.left - self.right,
                    high,
                    axes[0] if axes and with_time else None,
                )
            )
            top -= high + between
        if with_time:
            self._time(axes)
        return axes

    def beside(self, axes: Axes, gap: float, wide: float) -> Axes:
        """Returns a panel to the right of another, with the same height."""
        box = axes.get_position()
        return self._axes(box.x1 * self.width + gap, box.y0 * self.height, wide, box.height * self.height, None)

    def _axes(self, left: float, bottom: float, wide: float, high: float, other: Axes | None) -> Axes:
        axes = self.figure.add_axes(
            (left / self.width, bottom / self.height, wide / self.width, high / self.height), sharex=other
        )
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        if self.compact:
            axes.tick_params(labelsize=self.points(9), pad=2)
        return axes

    def _time(self, axes: Sequence[Axes]) -> None:
        """Gives panels the axis of events, with phases and steps."""
        from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

        frame, last = self.frame, axes[-1]
        for each in axes:
            each.set_xlim(0, max(frame.num_events, 1))
            each.tick_params(axis="x", labelbottom=each is last, length=3 if each is last else 0)
        wide = self.width - self.left - self.right
        most = max(min(int(wide / (0.8 if self.compact else 1.1)), 8), 2)
        ticks = MaxNLocator(most, integer=True).tick_values(0, max(frame.num_events, 1))
        last.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if 0 <= tick <= max(frame.num_events, 1)]))
        last.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_count(int(value))))
        last.set_xlabel(phrase("plots.axis.event"), loc="right", fontsize=self.points(8.5))
        if frame.bands:
            last.tick_params(axis="x", pad=_STRIP * POINTS_PER_INCH + 5, length=0)
            last.xaxis.labelpad = 0
            self._phases(last)
        self._steps(axes)

    def _phases(self, axes: Axes) -> None:
        box = axes.get_position()
        high = _STRIP / self.height
        strip = self.figure.add_axes((box.x0, box.y0 - high - 0.03 / self.height, box.width, high), sharex=axes)
        strip.set_ylim(0, 1)
        strip.axis("off")
        for name, fill in self.fills.items():
            spans = [(band.start, band.end - band.start) for band in self.frame.bands if band.name == name]
            if spans:
                strip.broken_barh(spans, (0, 1), **self.paint(fill))

    def _steps(self, axes: Sequence[Axes]) -> None:
        """Draws the beginnings of steps, with numbers where there is room."""
        frame = self.frame
        wide = (self.width - self.left - self.right) / max(frame.num_events, 1)  # inches per event
        if len(frame.steps) * 0.03 > wide * frame.num_events:
            return
        end = -1.0
        for at, number in frame.steps:
            for each in axes:
                each.axvline(at, color=self.theme.muted, linewidth=0.6, linestyle=(0, (2, 2)), zorder=1)
            label = phrase("plots.step", step=number)
            long = self.points(8.5) * 0.01 * cells(label)
            if at * wide >= end and at * wide + long <= wide * frame.num_events + self.right:
                axes[0].annotate(
                    label,
                    (at, 1),
                    xycoords=axes[0].get_xaxis_transform(),
                    xytext=(0, 3),
                    textcoords="offset points",
                    fontsize=self.points(7.5),
                    color=self.theme.muted,
                    ha="left",
                    va="bottom",
                    annotation_clip=False,
                )
                end = at * wide + long

    def phase_handles(self) -> list[Sign]:
        """Returns the legend entries of phases."""
        there = {band.name for band in self.frame.bands}
        return [
            (self.patch(fill), vocabulary.name("phase", name)) for name, fill in self.fills.items() if name in there
        ]

    def bytes_axis(self, axes: Axes, highest: int, *, room_above: float = 0.08) -> None:
        """Gives a panel its axis of bytes, up to the highest value plus some inches."""
        from matplotlib.ticker import FixedLocator, FuncFormatter

        high = axes.get_position().height * self.height
        scale = scale_for(highest, max(min(int(high / _TICK), 6), 1))
        share = min(room_above / high, 0.4)
        axes.set_ylim(0, highest / (1 - share))
        step = scale.step * scale.unit_bytes
        axes.yaxis.set_major_locator(FixedLocator([number * step for number in range(int(highest * 1.02 / step) + 1)]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: scale.label(value)))
        axes.set_ylabel(scale.unit, fontsize=self.points(8.5))
        axes.yaxis.set_label_coords(
            -(self.left - (0.12 if self.compact else 0.3)) / (axes.get_position().width * self.width), 0.5
        )
        axes.grid(axis="y", color=self.theme.grid, linewidth=0.7)
        axes.tick_params(axis="y", length=0)

    def name_panel(self, axes: Axes, words: str) -> None:
        """Writes the title of a panel into its upper left corner."""
        axes.annotate(
            words,
            (0, 1),
            xycoords="axes fraction",
            xytext=(6, -4),
            textcoords="offset points",
            ha="left",
            va="top",
            fontsize=self.points(8.5),
            zorder=8,
            color=self.theme.ink,
            bbox={"boxstyle": "square,pad=0.2", "facecolor": self.theme.paper, "edgecolor": "none", "alpha": 0.85},
        )

    def line(
        self,
        axes: Axes,
        at: Numbers,
        amounts: Numbers,
        color: str,
        dashes: Any = "-",
        width: float = 1.4,
        zorder: float = 5,
    ) -> None:
        """Draws a curve (bytes after events); its last value extends to the end of the run."""
        x, high = changes([*at, self._end(at)], amounts)
        axes.plot(x, high, drawstyle="steps-post", color=color, linestyle=dashes, linewidth=width, zorder=zorder)

    def area(
        self, axes: Axes, at: Numbers, amounts: Numbers, fill: Fill, zorder: float = 2, below: Numbers | None = None
    ) -> None:
        """Fills the area below a curve, down to 0 or to ``below`` (bytes at the same events)."""
        floor = (0,) * len(amounts) if below is None else below
        x, high, low = changes([*at, self._end(at)], amounts, floor)
        axes.fill_between(x, high, low, step="post", zorder=zorder, **self.paint(fill))

    def _end(self, at: Numbers) -> int:
        return max(self.frame.num_events, at[-1] + 1)


def stacked(one: Numbers, other: Numbers) -> Numbers:
    """Returns the sum of two curves over the same events."""
    return tuple(map(add, one, other))


def changes(at: Sequence[int], *curves: Sequence[int]) -> list[list[int]]:
    """Returns events and curves without repeated points; ``at`` also has the end beyond the last point."""
    rows = list(zip(*curves, strict=True))
    kept = [number for number, row in enumerate(rows) if not number or row != rows[number - 1]]
    return [
        [*(at[number] for number in kept), at[-1]],
        *([*(curve[number] for number in kept), curve[-1]] for curve in curves),
    ]


def picture(draw: Any, data: Any, look: PlotLook, form: str) -> bytes:
    """Draws and returns the plot, independent of the machine (matplotlibrc, the clock).

    Args:
        draw: Draw function of the kind of plot: takes ``data`` and ``look``, returns a Page.
        data: Its data from ``memdiag.views``.
        look: Its style.
        form: One of FORMS.
    """
    import matplotlib as mpl

    with speaking(drawn_language()), mpl.rc_context():
        mpl.rcdefaults()
        for key, value in settings(look.theme, fonts_for(words_of(look, data.frame))).items():
            mpl.rcParams[key] = value  # type: ignore[index,unused-ignore]  # newer stubs list the keys
        page: PlotPage = draw(data, sized(draw, data, look))
        return page.as_bytes(form)


def sized(draw: Any, data: Any, look: PlotLook) -> PlotLook:
    """Returns ``look`` with a height, if it has only a width.

    The height is that of text and legend, measured on a tall page, and of good panels.
    """
    if look.size is not None or look.width is None:
        return look
    tall: PlotPage = draw(data, replace(look, size=(look.width, _TALL)))
    return replace(look, size=(look.width, round(_TALL - tall.room + tall.wanted, 2)))
