"""Text as a terminal shows it: width in columns, line breaking, and styled parts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

# A Chinese line may break at any ideograph, but it does not begin with closing punctuation, nor end with opening
# punctuation.
_IDEOGRAPH, _CLOSING, _OPENING = (
    "\u3400-\u9fff",
    "\uff0c\u3002\uff1a\uff1b\uff09\u3001\uff1f\uff01\u201d\u300b%",
    "\uff08\u201c\u300a",
)
_BREAK = f"(?<=[{_IDEOGRAPH}{_CLOSING}])(?=[^{_CLOSING}\\s])|(?<=[^{_OPENING}\\s])(?=[{_IDEOGRAPH}{_OPENING}])"
_CUT_AMOUNT = re.compile(r"\s?\S*\d( [KMGT]?i?B?)?…$")
_KEPT_BLANK = "\u00a0"  # a line is not broken here

Span = tuple[str, str]  # text, and its style ("bold red")


class StyledText:
    """A line of text whose pieces have styles.

    Args:
        text: The first piece.
        style: Its style.
    """

    def __init__(self, text: str = "", style: str = "") -> None:
        self.spans: list[Span] = [(text, style)] if text else []

    @property
    def plain(self) -> str:
        """The text without styles."""
        return "".join(text for text, _ in self.spans)

    @property
    def num_cells(self) -> int:
        """The number of columns it takes."""
        return cells(self.plain)

    def append(self, text: str, style: str = "") -> StyledText:
        """Adds a piece at the end, and returns the line."""
        self.spans.append((text, style))
        return self

    def extend(self, other: StyledText) -> StyledText:
        """Adds all pieces of another line at the end, and returns the line."""
        self.spans += other.spans
        return self

    def part(self, start: int, end: int) -> StyledText:
        """Returns the characters from ``start`` to ``end`` (exclusive), in their styles."""
        found, at = StyledText(), 0
        for text, style in self.spans:
            if piece := text[max(start - at, 0) : max(end - at, 0)]:
                found.append(piece, style)
            at += len(text)
        return found

    def wrapped(self, width: int) -> list[StyledText]:
        """Returns it in lines of at most ``width`` columns. Spaces at its beginning are kept."""
        text = self.plain
        blanks = len(text) - len(text.lstrip(" "))
        return [self.part(*each) for each in _breaks(_KEPT_BLANK * blanks + text[blanks:], width)]

    def shortened(self, width: int) -> StyledText:
        """Returns it in at most ``width`` columns, with an ellipsis.

        A number is omitted instead of cut or split from its unit.
        """
        if self.num_cells <= width:
            return self
        short = cut(self.plain, width)
        if amount := _CUT_AMOUNT.search(short):
            short = short[: amount.start()] + "…"
        return self.part(0, len(short) - 1).append("…", self.spans[-1][1])


def cells(text: str) -> int:
    """Returns the number of terminal columns that ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def fitting(text: str, width: int) -> str:
    """Returns the longest prefix of ``text`` that fits ``width`` columns."""
    taken = 0
    for index, char in enumerate(text):
        taken += cells(char)
        if taken > width:
            return text[:index]
    return text


def sized(text: str, width: int) -> str:
    """Returns ``text`` in exactly ``width`` columns: cut, or padded with spaces."""
    text = fitting(text, width)
    return text + " " * (width - cells(text))


def cut(text: str, width: int) -> str:
    """Returns ``text`` in at most ``width`` columns: all of it if it fits, otherwise its beginning and an ellipsis."""
    return text if cells(text) <= width else fitting(text, width - 1) + "…"


def wrap(text: str, width: int) -> list[str]:
    """Returns ``text`` in lines of at most ``width`` columns.

    Lines are broken at spaces and between Chinese characters; a longer word is cut.
    """
    return [text[start:end] for start, end in _breaks(text, width)]


def _breaks(text: str, width: int) -> list[tuple[int, int]]:
    """Returns the start of each line, and the end of the last."""
    lines: list[tuple[int, int]] = []
    start = end = used = 0
    for blank, first, last in _words(text):
        size = cells(text[first:last])
        if end > start and used + blank + size > width:
            lines.append((start, end))
            end = start
        if end == start:
            start, used = first, 0
        else:
            used += blank
        while size > width:
            head = len(_head(text[first:last], width - used))
            lines.append((start, first + head))
            start = first = first + head
            used, size = 0, cells(text[first:last])
        end, used = last, used + size
    return [*lines, (start, end)] if end > start or not lines else lines


def _words(text: str) -> Iterable[tuple[int, int, int]]:
    """Yields the units between which a line may be broken.

    They are the number of spaces before the unit (0 or 1), its start, and its end.
    """
    first = 0
    for number, word in enumerate(text.split(" ")):
        parts = [word] if word.isascii() else re.sub(_BREAK, "\n", word).split("\n")
        for index, part in enumerate(parts):
            yield int(number > 0 and index == 0), first, first + len(part)
            first += len(part)
        first += 1


def _head(word: str, width: int) -> str:
    """Returns the first characters of a word that fit ``width`` columns, at least one; of a comma list, whole items."""
    taken = 0
    for index, char in enumerate(word):
        taken += cells(char)
        if taken > width:
            item = word.rfind(",", 0, index) + 1
            return word[: item or max(index, 1)]
    return word
