"""The layout of the screen: a timeline on top, facts about the moment, one list at a time, keys at the bottom."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen
from textual.timer import Timer

from memdiag.render.support.words import version_words
from memdiag.results.report import Report
from memdiag.text import phrase
from memdiag.tui import keys
from memdiag.tui.card_lines import card_lines, num_lines
from memdiag.tui.lines import DIM, STRONG, Said, folded, joined, short
from memdiag.tui.lists import ABOUT, CARD, FINDINGS, Lists, title_of
from memdiag.tui.pieces import Drawn
from memdiag.tui.question import Question
from memdiag.tui.rows import Rows
from memdiag.tui.status_lines import FEWEST, NUM_LINES, WITH_BAR, status
from memdiag.tui.walk import Walk

_FOR_FACTS = 44  # columns of the first line for facts, next to the file name
_SIDE_FROM, _SIDE = 110, 0.55  # columns from which on a finding is shown next to the list, and its fraction of them
_LEAST_CURVE, _MOST_CURVE = 5, 18
_TOTALS_FROM, _BAR_FROM = 16, 30  # rows of the terminal


class ScreenParts(Screen[None], inherit_bindings=False):
    """Everything but the popups.

    Args:
        name_of_file: Name of the file.
        delay: Seconds of rest before lists follow the moment.
        copy: Copies a line to the clipboard.
    """

    DEFAULT_CSS = f"""
    ScreenParts {{ layout: vertical; overflow: hidden; }}
    ScreenParts > Drawn {{ height: 1; }}
    #title {{ background: $panel; }}
    #card {{ height: 0; }}
    #curve {{ height: 8; }}
    #status {{ height: {NUM_LINES}; }}
    #tabs, #keys {{ background: $panel; }}
    Horizontal {{ height: 1fr; }}
    #list {{ width: 1fr; height: 100%; }}
    #side {{ width: {_SIDE:.0%}; height: 100%; padding: 0 0 0 1; display: none; }}
    ScreenParts.beside #side {{ display: block; }}
    """

    AUTO_FOCUS = ""

    def __init__(self, name_of_file: str, delay: float, copy: Callable[[str], None]) -> None:
        super().__init__()
        self._name_of_file = name_of_file
        self._delay = delay
        self._copy_line = copy
        self._walk: Walk | None = None
        self._lists: Lists | None = None
        self._busy: str = phrase("screen.busy.start")
        self._said = ""
        self._waiting: Timer | None = None
        self._asking: Question | None = None
        self._number = 0
        self._report: Report | None = None

    def compose(self) -> ComposeResult:
        """Creates the widgets."""
        yield Drawn(self._title_line, "title")
        yield Drawn(self._card, "card")
        yield Drawn(self._curve, "curve")
        yield Drawn(self._status, "status")
        yield Drawn(self._tabs, "tabs")
        with Horizontal():
            yield Rows(Said([Text()]), "list")
            yield Drawn(self._side, "side")
        yield Drawn(self._keys, "keys")

    @property
    def rows(self) -> Rows:
        """The list."""
        return self.query_one("#list", Rows)

    def on_resize(self, event: events.Resize) -> None:
        """Gives the timeline its share of the height."""
        height = min(max(event.size.height // 3, _LEAST_CURVE), _MOST_CURVE)
        self.query_one("#curve").styles.height = height
        self._fit_card()
        rows = (
            WITH_BAR if event.size.height >= _BAR_FROM else NUM_LINES if event.size.height >= _TOTALS_FROM else FEWEST
        )
        self.query_one("#status").styles.height = rows
        if self._lists is not None:
            self._lists.about.set_width(event.size.width - 1)
            self._show_list(self._number)

    # ---------------------------------------------------------------------------------------- updates from outside

    def say_busy(self, seconds: float) -> None:
        """Shows that work is in progress, and for how long."""
        self._busy = phrase("screen.busy.diagnosing" if self._walk else "screen.busy.reading", seconds=f"{seconds:.0f}")
        self.query_one("#title", Drawn).again()
        if self._walk is None:
            self.query_one("#curve", Drawn).again()

    def show_trace(self, walk: Walk) -> None:
        """Shows a trace, without findings."""
        self._walk = walk
        self._lists = Lists(walk, color=not self.app.no_color)
        self._lists.about.set_width(self.size.width - 1)
        self._show_list(0)
        self._redraw()

    def show_report(self, report: Report | None, error: str) -> None:
        """Shows the diagnosis."""
        self._busy = ""
        if self._lists is None:
            return
        self._lists.take(report, short(error, 400))
        self._report = report
        self._fit_card()
        self._lists.about.set_width(self.size.width - 1)
        self._refill()
        self._redraw()

    # -------------------------------------------------------------------------------------------------------- the lines

    def _title_line(self, width: int, _: int) -> list[Text]:
        parts = ["memdiag view", short(self._name_of_file, max(width - _FOR_FACTS, 20))]
        if self._walk is not None:
            trace, device = self._walk.trace, self._walk.here.device
            number, several = str(device.device), self._walk.num_devices
            parts.append(
                phrase("screen.device-of", device=number, count=several)
                if several > 1
                else phrase("report.device", device=number)
            )
            backend, version = trace.backend or phrase("screen.unknown-backend"), trace.torch_version
            parts.append(
                short(
                    phrase("screen.torch", backend=backend, version=version_words(version)) if version else backend, 40
                )
            )
            parts.append(phrase("report.events", count=device.num_events))
        busy = f" {self._busy} " if self._busy else ""
        room = max(width - cell_len(busy), 1)
        return [Text(set_cell_size(joined(parts, room), room), style=STRONG).append(busy, "reverse")]

    def _fit_card(self) -> None:
        """Gives the verdict card its rows."""
        self.query_one("#card").styles.height = num_lines(self._report, self.size.height)

    def _card(self, width: int, height: int) -> list[Text]:
        lines = card_lines(self._report)[:height] if self._report is not None else []
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return lines

    def _curve(self, width: int, height: int) -> list[Text]:
        if self._walk is None:
            words = [phrase("screen.reading", file=self._name_of_file), self._busy]
            return [*[Text()] * (height // 2 - 1), *(Text(short(line, width).center(width)) for line in words)]
        here = self._walk.here
        return here.curve.draw(here.window, here.at, width, height, color=not self.app.no_color)

    def _status(self, width: int, height: int) -> list[Text]:
        if self._walk is None:
            return []
        lines = status(self._walk, width, height, color=not self.app.no_color)
        if self._said:
            lines[-1] = Text(joined([self._said], width), style="reverse")
        return lines

    def _tabs(self, width: int, _: int) -> list[Text]:
        line = Text(no_wrap=True)
        for place, words in enumerate(self._tab_titles()):
            line.append(words, "bold reverse" if place == self._number else "")
        if self._lists is not None:
            summary = self._lists.summary(self._number)
            room = width - line.cell_len - 2
            line.append("  ").append(joined(summary.split(" · "), room) if room > 8 else "", DIM)
        return [line]

    def _tab_titles(self) -> list[str]:
        titles = [title_of(number) for number in range(CARD if self._lists is None else self._lists.count)]
        if self._lists is not None and self._lists.findings.report is not None:
            count = len(self._lists.findings.report.findings)
            titles[FINDINGS] = phrase("screen.list.numbered", title=titles[FINDINGS], count=count)
        return [f" {number + 1} {title} " for number, title in enumerate(titles)]

    def _side(self, width: int, height: int) -> list[Text]:
        rows = self.rows
        text = rows.lines.detail(rows.cursor) if rows.cursor < len(rows.lines) else None
        return folded(text, width - 1)[:height] if text is not None else []

    def _keys(self, width: int, _: int) -> list[Text]:
        if self._asking is not None:
            return [self._asking.line(width)]
        line = Text(" ", no_wrap=True)
        for words, _action in keys.bottom_line(width - 1):
            key, what = words.split(" ", 1)
            line.append(key, STRONG).append(f" {what}  ", DIM)
        return [line]

    # --------------------------------------------------------------------------------------------- drawing what changed

    def _redraw(self) -> None:
        """Redraws everything but the list."""
        for drawn in self.query(Drawn):
            drawn.again()

    def _moved(self, said: str = "") -> None:
        """Handles a change of moment or range: timeline and status follow at once, the list after a rest."""
        self._said = said
        self._redraw()
        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None
        if self._delay:
            self._waiting = self.set_timer(self._delay, self._refill)
        else:
            self._refill()

    def _refill(self) -> None:
        """Rebuilds the list for the moment."""
        if self._lists is None:
            return
        self._show_list(self._number)

    def _show_list(self, number: int, *, keep: bool = True) -> None:
        if self._lists is None:
            return
        self._number = number
        rows = self.rows
        rows.has_cursor = number != ABOUT
        self.set_class(
            self.size.width >= _SIDE_FROM and number == FINDINGS and len(self._lists.lines(number)) > 0, "beside"
        )
        rows.put(self._lists.lines(number), keep=keep)
        self.query_one("#tabs", Drawn).again()
        self.query_one("#side", Drawn).again()

    def _say(self, said: str) -> None:
        self._said = said
        self.query_one("#status", Drawn).again()
