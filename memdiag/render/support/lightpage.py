"""A page of text for a terminal, as page.py makes it, but without rich: for commands that must be there at once.

rich takes longer to load than such a command takes to do its work. What it is needed for here is little: wrapped
paragraphs, columns, a few colours, and characters that are two columns wide.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from memdiag.render.support.look import Look
from memdiag.text import in_ascii

NARROWEST, WIDEST = 40, 132
_CODES = {
    "bold": "1",
    "dim": "2",
    "underline": "4",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}

# A line of Chinese may end beside any ideograph, but it does not begin with a closing sign, nor end with an opening
# one.
_IDEOGRAPH, _CLOSING, _OPENING = (
    "\u3400-\u9fff",
    "\uff0c\u3002\uff1a\uff1b\uff09\u3001\uff1f\uff01\u201d\u300b%",
    "\uff08\u201c\u300a",
)
_BREAK = f"(?<=[{_IDEOGRAPH}{_CLOSING}])(?=[^{_CLOSING}\\s])|(?<=[^{_OPENING}\\s])(?=[{_IDEOGRAPH}{_OPENING}])"

Cell = str | tuple[str, str]  # text, or text and its style ("bold red")


class LightPage:
    """Collects what is printed.

    Args:
        look: Of the place it goes to; its width is kept between 40 and 132 columns.
    """

    def __init__(self, look: Look) -> None:
        self.look = look
        self.width = min(max(look.width, NARROWEST), WIDEST)
        self._lines: list[str] = []

    @property
    def num_lines(self) -> int:
        """How many lines it has."""
        return len(self._lines)

    def text(self, text: str, style: str = "", indent: int = 0) -> None:
        """Adds a paragraph, wrapped."""
        self._lines += [
            " " * indent + self._styled(line, style) for line in wrap(self._known(text), self.width - indent)
        ]

    def paste(self, line: str, indent: int) -> None:
        """Adds one line to copy: never wrapped, never cut."""
        self._lines.append(" " * indent + self._styled(self._known(line), "bold"))

    def gap(self) -> None:
        """Adds an empty line."""
        self._lines.append("")

    def title(self, title: str) -> None:
        """Adds the title of a section."""
        self.gap()
        self.text(title, "bold underline" if self.look.color else "bold")

    def spans(self, parts: Iterable[tuple[str, str]], indent: int = 0) -> None:
        """Adds one line of pieces (text, style), as they are."""
        self._lines.append(" " * indent + "".join(self._styled(self._known(text), style) for text, style in parts))

    def grid(self, kinds: str, rows: Sequence[Sequence[Cell]], indent: int = 2) -> None:
        """Adds a table without lines; where its columns have no room beside each other, the cells of a row follow each other.

        Args:
            kinds: A letter for each column: "l", "r", or "w" for the one that takes the rest of the width and wraps.
            rows: The cells.
            indent: Columns to its left.
        """
        texts = [[self._known(cell if isinstance(cell, str) else cell[0]) for cell in row] for row in rows]
        widths = [max((cells(row[column]) for row in texts), default=0) for column in range(len(kinds))]
        if "w" in kinds:
            rest = kinds.index("w")
            widths[rest] = max(self.width - indent - sum(widths) + widths[rest] - 2 * (len(kinds) - 1), 10)
        if len(kinds) > 1 and indent + sum(widths) + 2 * (len(kinds) - 1) > self.width:
            self._in_a_row(texts, rows, indent)
            return
        for row, plain_row in zip(rows, texts, strict=True):
            styles = ["" if isinstance(cell, str) else cell[1] for cell in row]
            columns = [
                wrap(text, width) if kind == "w" else [text]
                for text, width, kind in zip(plain_row, widths, kinds, strict=True)
            ]
            for number in range(max(map(len, columns))):
                line = [column[number] if number < len(column) else "" for column in columns]
                self._row(line, styles, kinds, widths, indent)

    def _in_a_row(self, texts: list[list[str]], rows: Sequence[Sequence[Cell]], indent: int) -> None:
        """Adds the cells of each row one after the other, with a hanging indent."""
        for row, plain_row in zip(rows, texts, strict=True):
            style = next((cell[1] for cell in row if not isinstance(cell, str)), "")
            first, *rest = wrap("  ".join(filter(None, plain_row)), self.width - indent)
            self._lines.append(" " * indent + self._styled(first, style))
            for line in wrap(" ".join(rest), max(self.width - indent - 2, 1)) if rest else []:
                self._lines.append(" " * (indent + 2) + self._styled(line, style))

    def has_room(self, rows: Sequence[Sequence[Cell]], indent: int = 2) -> bool:
        """Returns whether a table of these rows, none of which wraps, fits the width."""
        columns = [
            max(cells(self._known(cell if isinstance(cell, str) else cell[0])) for cell in column)
            for column in zip(*rows, strict=True)
        ]
        return indent + sum(columns) + 2 * (len(columns) - 1) <= self.width

    def _row(self, line: list[str], styles: list[str], kinds: str, widths: list[int], indent: int) -> None:
        shown = ""
        for text, style, kind, width in zip(line, styles, kinds, widths, strict=True):
            space = " " * (width - cells(text))
            shown += (space + self._styled(text, style) if kind == "r" else self._styled(text, style) + space) + "  "
        self._lines.append(" " * indent + shown.rstrip())

    def _known(self, text: str) -> str:
        """Returns text in the characters that there are: before its width is measured, since some take more room in ASCII."""
        return text if self.look.unicode else in_ascii(text)

    def _styled(self, text: str, style: str) -> str:
        if not self.look.color or not style or not text:
            return text
        return f"\x1b[{';'.join(_CODES[word] for word in style.split())}m{text}\x1b[0m"

    def finish(self) -> str:
        """Returns the page."""
        return "\n".join(line.rstrip() for line in self._lines) + "\n"


def cells(text: str) -> int:
    """Returns how many columns of a terminal ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def wrap(text: str, width: int) -> list[str]:
    """Returns ``text`` in lines of at most ``width`` columns, broken at blanks and between Chinese characters; a longer word is cut."""
    lines, line, used = [], "", 0
    for blank, word in _words(text):
        size = cells(word)
        if line and used + blank + size > width:
            lines.append(line)
            line, used = "", 0
        elif line and blank:
            line, used = line + " ", used + 1
        while size > width:
            head = _head(word, width - used)
            lines.append(line + head)
            word, line, used = word[len(head) :], "", 0
            size = cells(word)
        line, used = line + word, used + size
    return [*lines, line] if line or not lines else lines


def _words(text: str) -> Iterable[tuple[int, str]]:
    """Yields what a line may be broken between, each with the number of blanks before it (0 or 1)."""
    for number, word in enumerate(text.split(" ")):
        parts = [word] if word.isascii() else re.sub(_BREAK, "\n", word).split("\n")
        for index, part in enumerate(parts):
            yield int(number > 0 and index == 0), part


def _head(word: str, width: int) -> str:
    """The first characters of a word that take at most ``width`` columns, one at least; of a list with commas whole items."""
    taken = 0
    for index, char in enumerate(word):
        taken += cells(char)
        if taken > width:
            item = word.rfind(",", 0, index) + 1
            return word[: item or max(index, 1)]
    return word
