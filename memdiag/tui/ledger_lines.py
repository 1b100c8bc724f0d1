"""The list of the card's memory over time: one row for each sample, whose parts and bar sum to the card."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from rich.text import Text

from memdiag import vocabulary
from memdiag.analyzers.support.ledger import ledger_of
from memdiag.render.support.bar import share_out
from memdiag.render.support.card_timeline import GLYPHS, PARTS, name_of
from memdiag.text import phrase
from memdiag.tui.lines import DIM, STRONG, Lines, cell
from memdiag.tui.walk import OneDevice
from memdiag.units import format_bytes

_MOST = 2048
_TIME, _SIZE, _WHEN = 9, 11, 20  # columns
_LEAST_BAR = 10


class LedgerLines(Lines):
    """The samples of a card.

    Args:
        here: The device and its moment: the sample that holds at this moment is bold.
        color: Whether the terminal has colours; otherwise bars are made of different characters.
    """

    def __init__(self, here: OneDevice, *, color: bool = True) -> None:
        self.empty = phrase("screen.card.empty")
        self._color = color
        self.moments = ledger_of(here.device, _MOST)
        self.used = [at for at, part in enumerate(PARTS) if any(self._sizes(row)[at] for row in range(len(self)))]
        events = [-1 if moment.at_event is None else moment.at_event for moment in self.moments]
        is_placed = all(event >= 0 for event in events) and all(one <= other for one, other in pairwise(events))
        self.now = bisect_right(events, here.at + 1) - 1 if is_placed and here.device.num_events else -1

    def __len__(self) -> int:
        return len(self.moments)

    def head(self, width: int) -> Text | None:
        """Returns the titles of the columns; the glyphs are the legend of the bars."""
        if not self.moments:
            return None
        line = cell(phrase("screen.card.time"), _TIME, right=True)
        for at in self._shown(width):
            part = Text(GLYPHS[at], self._style(at)) + Text(f" {phrase(f'report.card-time.{PARTS[at]}.short')}", DIM)
            line.append(" " * max(_SIZE - part.cell_len, 1)).append_text(part)
        line.append("  ").append_text(cell(phrase("screen.card.moment"), _WHEN))
        return line

    def line(self, number: int, width: int) -> Text:
        """Returns a row: its time, its parts, its occasion, and the bar of the whole card."""
        moment, sizes = self.moments[number], self._sizes(number)
        seconds = (moment.at_us - self.moments[0].at_us) / 1e6
        line = cell(f"{seconds:.1f} s", _TIME, STRONG if number == self.now else "", right=True)
        for at in self._shown(width):
            line.append_text(cell(format_bytes(sizes[at]), _SIZE, right=True))
        line.append("  ").append_text(cell(self._when(number), _WHEN, STRONG if number == self.now else DIM))
        room = width - line.cell_len - 1
        if room >= _LEAST_BAR:
            line.append(" ")
            for at, columns in enumerate(share_out(sizes, room)):
                line.append(GLYPHS[at] * columns, self._style(at))
        line.truncate(width)
        return line

    def detail(self, number: int) -> Text | None:
        """Returns all parts of a sample, and their sum."""
        moment, sizes = self.moments[number], self._sizes(number)
        text = Text(f"{self._when(number)}\n\n", STRONG)
        for at, size in enumerate(sizes):
            text.append(f"{format_bytes(size):>{_SIZE}}  {name_of(PARTS[at])}\n")
        text.append(f"{format_bytes(sum(sizes)):>{_SIZE}}  {phrase('screen.card.total')}\n", STRONG)
        if moment.own_outside_bytes is None:
            text.append(f"\n{phrase('report.card-time.unknown-parts')}\n", DIM)
        return text

    def summary(self) -> str:
        """Returns the number of samples, and the size of the card."""
        if not self.moments:
            return ""
        total = format_bytes(self.moments[-1].total_bytes)
        return phrase("screen.card.summary", count=len(self), total=total)

    def _shown(self, width: int) -> list[int]:
        """Returns the parts that have a column: as many as fit, free memory always."""
        room = max((width - _TIME - _WHEN - 3 - _LEAST_BAR) // _SIZE, 1)
        return self.used if len(self.used) <= room else [*self.used[: room - 1], self.used[-1]]

    def _sizes(self, number: int) -> list[int]:
        return [getattr(self.moments[number], f"{part}_bytes") or 0 for part in PARTS]

    def _when(self, number: int) -> str:
        moment = self.moments[number]
        return phrase(f"report.card-time.when.{moment.when}", step=moment.step)

    def _style(self, at: int) -> str:
        return vocabulary.color("card", PARTS[at]) if self._color and PARTS[at] != "free" else ""
