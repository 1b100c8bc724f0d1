"""The figure of a plot without its panels: title and facts above, legend and notes below, all measured first."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memdiag.render.plot.style import CHINESE, COMPACT, GREY_PHASES, PHASES, Fill, PlotLook, drawable, fonts_for
from memdiag.text import language, shorten, shown

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.legend import Legend
    from matplotlib.text import Text

    from memdiag.results.plots import PlotFrame

POINTS_PER_INCH = 72.0
_LEFT, _RIGHT, _EDGE = 0.8, 0.3, 0.22  # inches
_TITLE, _SUBTITLE, _NOTE = 13.0, 8.5, 7.5  # points
_DOT = "  ·  "
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "memdiag"},
    "pdf": {"CreationDate": None, "Creator": "memdiag", "Producer": None},
}

Sign = tuple["Artist", str]  # an artist of a legend, and its label


class Sheet:
    """A figure with title, facts, legend and notes.

    Args:
        look: Size, resolution, colours and title.
        size: Inches, if ``look`` has none.
        title: Title, if ``look`` has none.
        frame: Subtitle and notes.
        right: Inches to the right of the panels.
        left: Inches to the left of them.
        grey_phases: Whether phases are drawn without colour, because all colours have other meanings.
    """

    def __init__(
        self,
        look: PlotLook,
        size: tuple[float, float],
        title: str,
        frame: PlotFrame,
        *,
        right: float = _RIGHT,
        left: float = _LEFT,
        grey_phases: bool = False,
    ) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.theme = look.theme
        self.width, self.height = look.size or size
        self.compact = self.width < COMPACT
        self.edge = 0.06 if self.compact else _EDGE
        self.left, self.right, self.frame = left, right, frame
        if self.compact:
            self.left, self.right = min(left, 0.5), 0.2 if right <= _RIGHT else min(right, 0.6)
        self.room = self.wanted = 0.0  # minimum and best height of the panels, in inches
        self.fills = GREY_PHASES if grey_phases else PHASES
        self.fonts = fonts_for(words_of(look, frame))
        self.figure = Figure(figsize=(self.width, self.height), dpi=look.dpi)
        FigureCanvasAgg(self.figure)
        self.bottom = self.edge
        self.top = self.height - self.edge
        self._say([look.title or title], _TITLE, self.theme.ink, weight="bold")
        self.top -= 0.05
        self._say(frame.facts, _SUBTITLE, self.theme.muted)

    def points(self, size: float) -> float:
        """Returns the text size in points that corresponds to ``size`` on a page of ordinary width."""
        return max(size * 0.8, min(size, 6.5)) if self.compact else size

    def text(self, words: str, limit: int = 0) -> str:
        """Returns text from a trace in a form that can be drawn."""
        return drawable(words, self.fonts, limit)

    def _say(self, facts: Sequence[str], points: float, color: str, weight: str = "normal") -> None:
        """Writes facts on the next line at the top, as many as fit; one that is too long is cut in its middle."""
        parts = [self.text(fact) for fact in facts]
        line = self.figure.text(
            self.edge / self.width,
            self.top / self.height,
            _DOT.join(parts),
            ha="left",
            va="top",
            fontsize=self.points(points),
            color=color,
            fontweight=weight,
        )
        room = self.width - 2 * self.edge
        while (wide := self._wide(line)) > room and (len(parts) > 1 or len(parts[0]) > 12):
            if len(parts) > 1:
                parts.pop()
            else:
                parts = [shorten(parts[0], max(int(len(parts[0]) * min(room / wide, 0.97)), 12))]
            line.set_text(_DOT.join(parts))
        self.top -= self.points(points) * 1.3 / POINTS_PER_INCH

    def _wide(self, line: Text) -> float:
        return float(line.get_window_extent().width / self.figure.dpi)

    def foot(self, *groups: Sequence[Sign]) -> None:
        """Writes notes and, above them, the legend: each group begins a line."""
        notes = _DOT.join(self.text(note) for note in self.frame.notes)
        note = self.points(_NOTE)
        signs = int((self.width - 2 * self.edge) * POINTS_PER_INCH / (note * 0.56))
        if language() == "zh":
            signs = int(signs * 0.56)  # characters are as wide as they are high
        for line in reversed(textwrap.wrap(notes, max(signs, 20))):
            self.figure.text(
                self.edge / self.width,
                self.bottom / self.height,
                line,
                ha="left",
                va="bottom",
                fontsize=note,
                color=self.theme.muted,
            )
            self.bottom += note * 1.35 / POINTS_PER_INCH
        self.bottom += 0.06
        for line_of_signs in reversed([line for group in groups for line in self._lines(group)]):
            self._legend(line_of_signs)
            self.bottom += 0.15 if self.compact else 0.2
        self.bottom += 0.04

    def _lines(self, group: Sequence[Sign]) -> list[list[Sign]]:
        """Returns the legend lines of a group."""
        lines: list[list[Sign]] = []
        used = 0.0
        for handle, label in group:
            legend = self._legend([(handle, self.text(label, 90))])
            drawn_by = self.figure.canvas.get_renderer()  # type: ignore[attr-defined]
            wide = legend.get_window_extent(drawn_by).width / self.figure.dpi + 0.2
            legend.remove()
            if not lines or used + wide > self.width - 2 * self.edge:
                lines.append([])
                used = 0.0
            lines[-1].append((handle, self.text(label, 90)))
            used += wide
        return lines

    def _legend(self, signs: Sequence[Sign]) -> Legend:
        return self.figure.legend(
            [handle for handle, _ in signs],
            [label for _, label in signs],
            loc="lower left",
            ncols=len(signs),
            fontsize=self.points(8.5),
            bbox_to_anchor=(self.edge / self.width, self.bottom / self.height),
            borderaxespad=0,
            borderpad=0,
            handlelength=1.5 if self.compact else 2.0,
            handleheight=1.0,
            columnspacing=1.0 if self.compact else 1.6,
        )

    def paint(self, fill: Fill) -> dict[str, Any]:
        """Returns matplotlib's settings for a fill.

        Free memory has coloured hatches, data has paper-coloured hatches.
        """
        return {
            "facecolor": self.theme.paper if fill.is_line else fill.color,
            "edgecolor": fill.color if fill.is_line else self.theme.hatch,
            "hatch": fill.hatch or None,
            "linewidth": 0,
        }

    def patch(self, fill: Fill) -> Artist:
        """Returns the legend artist for a fill."""
        from matplotlib.patches import Patch

        return Patch(**self.paint(fill))

    def as_bytes(self, form: str) -> bytes:
        """Returns the picture in one of FORMS."""
        stream = io.BytesIO()
        self.figure.savefig(stream, format=form, metadata=_METADATA[form])
        return stream.getvalue()


def words_of(look: PlotLook, frame: PlotFrame) -> str:
    """Returns a text with all characters of a page that memdiag's first font may lack."""
    own = CHINESE if language() == "zh" else ""
    return "".join((look.title or "", *map(shown, frame.facts), *map(shown, frame.notes), own, "·…"))
