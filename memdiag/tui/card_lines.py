"""The verdict card as lines of the screen: headline, first remedy, prediction."""

from __future__ import annotations

from rich.text import Text

from memdiag.render.support import card, words
from memdiag.results.report import Report
from memdiag.tui.lines import DIM, STRONG, short

MOST_LINES = 4
_ALL_FROM, _ONE_FROM = 30, 20  # rows of the terminal from which there is room for the card, and for one line of it


def num_lines(report: Report | None, height: int) -> int:
    """Returns how many lines the card takes on a screen of ``height`` rows."""
    if report is None or height < _ONE_FROM:
        return 0
    return min(len(card_lines(report)), MOST_LINES if height >= _ALL_FROM else 1)


def card_lines(report: Report) -> list[Text]:
    """Returns the card, one line for each row."""
    verdict = card.verdict_of(report)
    lines = [
        Text(f"{words.severity_name(verdict.severity)}  ", words.SEVERITY_STYLE[verdict.severity]).append(
            short(verdict.summary, 400), STRONG
        )
    ]
    for row in card.rows(verdict):
        line = Text(f"{row.label}  ", DIM).append(short(row.text, 400), "not dim")
        lines.append(line.append(f"  {short(row.command, 400)}", STRONG) if row.command else line)
    return [lines[0], *lines[2:], *lines[1:2]]
