"""Scrollable rows of text: the base of every list of ``memdiag view``.

It is independent of the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from memdiag import vocabulary
from memdiag.text import plain

LONGEST = 4000  # characters of a text that are used at all
HELD, WAITING, FREE = (vocabulary.color("curve", key) for key in ("allocated", "active", "reserved"))
STRONG, DIM = "bold", "dim"
_HANG_FROM, _MOST_HANG = 40, 20  # columns
_CONSOLE = Console(width=1000, file=StringIO(), color_system=None)  # rich wraps text only with one


class Lines:
    """A list of rows. The base class has none."""

    empty = ""

    def __len__(self) -> int:
        return 0

    def head(self, width: int) -> Text | None:  # noqa: ARG002 - for those that have one
        """Returns the line above the rows, or None."""
        return None

    def line(self, number: int, width: int) -> Text:
        """Returns a row in at most ``width`` columns."""
        raise NotImplementedError

    def detail(self, number: int) -> Text | None:  # noqa: ARG002 - as above
        """Returns the details of a row, or None if there are none."""
        return None


@dataclass(frozen=True)
class Said(Lines):
    """A fixed list of lines."""

    texts: Sequence[Text]

    def __len__(self) -> int:
        return len(self.texts)

    def line(self, number: int, width: int) -> Text:
        """Returns a line."""
        text = self.texts[number].copy()
        text.truncate(width, overflow="ellipsis")
        return text


def short(text: object, limit: int = LONGEST) -> str:
    """Returns text of a file, safe for a terminal, in at most ``limit`` characters.

    Only both ends of a very long text are used.
    """
    known = text if isinstance(text, str) else str(text)
    if len(known) > 2 * LONGEST:
        known = known[:LONGEST] + "…" + known[-LONGEST:]
    return plain(known, limit)


def cell(text: str, width: int, style: str = "", *, right: bool = False) -> Text:
    """Returns safe text in exactly ``width`` columns."""
    room = width - cell_len(text)
    if room < 0:
        text = set_cell_size(text, max(width - 1, 0)) + "…" * (width > 0)
    elif right:
        text = " " * room + text
    else:
        text += " " * room
    return Text(text, style=style, no_wrap=True, end="")


def fitted(text: str, width: int, style: str = "") -> Text:
    """Returns text of a file in exactly ``width`` columns, without its middle if it is too long."""
    return cell(short(text, max(width, 2)), width, style)


def joined(parts: Sequence[str], width: int, between: str = " · ") -> str:
    """Returns as many leading parts as fit in ``width`` columns; the first is truncated if necessary."""
    line = parts[0] if parts else ""
    for part in parts[1:]:
        if cell_len(line) + cell_len(between) + cell_len(part) <= width:
            line += between + part
    return line if cell_len(line) <= width else set_cell_size(line, max(width - 1, 0)) + "…"


def folded(text: Text, width: int) -> list[Text]:
    """Returns the lines of a text wrapped at ``width`` columns.

    Continuation lines are indented like the first line's words.
    """
    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        hang = _hang(line.plain) if width >= _HANG_FROM else 0
        parts = line.wrap(_CONSOLE, max(width, 1), overflow="fold")
        lines += parts[:1] or [Text()]
        if len(parts) > 1:
            rest = line[len(parts[0].plain) :]
            rest.plain = rest.plain.lstrip()
            rest = line[len(line.plain) - len(rest.plain) :]
            lines += [
                Text(" " * hang).append_text(part)
                for part in rest.wrap(_CONSOLE, max(width - hang, 1), overflow="fold")
            ]
    for part in lines:
        part.rstrip()
    return lines


def _hang(line: str) -> int:
    """Returns the indentation of a line's words: after a number or a label and two spaces, or the line's own."""
    lead = len(line) - len(line.lstrip())
    behind = line.find("  ", lead)
    return behind + 2 if 0 <= behind < _MOST_HANG - 2 else min(lead + 2 if lead else 0, _MOST_HANG)
