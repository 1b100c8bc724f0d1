"""A page of text for a terminal: paragraphs, tables and lines to paste, in a given width and character set.

It does not use rich, whose import takes longer than some commands. Lines to paste are never wrapped: a terminal that is
too narrow wraps them itself, and they still copy as one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memdiag.render.support.line import StyledText, cells, fitting, wrap
from memdiag.render.support.look import Look
from memdiag.text import in_ascii

NARROWEST, WIDEST = 40, 132
WIDE, NARROW = 110, 60
_GAP = 2  # columns between table columns
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_CODES = {
    "bold": "1",
    "dim": "2",
    "underline": "4",
    **{name: str(30 + number) for number, name in enumerate(_COLOURS)},
    **{f"bright_{name}": str(90 + number) for number, name in enumerate(_COLOURS)},
}

Cell = str | tuple[str, str]  # text, or text and its style ("bold red")
Row = Sequence[Cell | StyledText]


class TerminalPage:
    """Collects the lines of a page.

    Args:
        look: The output device; its width is limited to 40 to 132 columns.
    """

    def __init__(self, look: Look) -> None:
        self.look = look
        self.width = min(max(look.width, NARROWEST), WIDEST)
        self._lines: list[str] = []

    @property
    def wide(self) -> bool:
        """True if there is room for more than 80 columns."""
        return self.width >= WIDE

    @property
    def narrow(self) -> bool:
        """True if there is no room for explanations next to numbers."""
        return self.width < NARROW

    @property
    def num_lines(self) -> int:
        """Number of lines."""
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

    def title(self, title: str, after: str = "") -> None:
        """Adds the title of a section, followed by a dim text."""
        self.gap()
        line = StyledText(title, "bold underline" if self.look.color else "bold")
        self.line(line.append("  " + after, "dim") if after else line)

    def line(self, line: StyledText, indent: int = 0) -> None:
        """Adds a paragraph in several styles, wrapped."""
        lines = self._known_line(line).wrapped(self.width - indent)
        self._lines += [" " * indent + self._drawn(each) for each in lines]

    def spans(self, parts: Iterable[tuple[str, str]], indent: int = 0) -> None:
        """Adds one line of parts (text, style), unchanged."""
        self._lines.append(" " * indent + "".join(self._styled(self._known(text), style) for text, style in parts))

    def grid(self, kinds: str, rows: Sequence[Sequence[Cell]], indent: int = 2) -> None:
        """Adds a table without lines; if its columns do not fit, the cells of a row follow each other.

        Args:
            kinds: A letter for each column: "l", "r", or "w" for the one that takes the remaining width and wraps.
            rows: The cells.
            indent: Indentation in columns.
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

    def columns(self, kinds: str, rows: Sequence[Row], indent: int = 2) -> None:
        """Adds a table without lines whose columns remain side by side, however narrow the page is.

        Args:
            kinds: A letter for each column: "l", "r", or "w" for the one that wraps if there is no room. Without a "w",
                the "l" columns wrap.
            rows: The cells; a row may have fewer than there are columns.
            indent: Indentation in columns.
        """
        empty = [StyledText()] * len(kinds)
        table = [[*(self._known_line(_styled_text(cell)) for cell in row), *empty[len(row) :]] for row in rows]
        gaps = [_GAP] * (len(kinds) - 1) + [0]
        wrapping = "w" if "w" in kinds else "l"
        natural = [max((row[column].num_cells for row in table), default=0) + gap for column, gap in enumerate(gaps)]
        narrowed = _narrowed(natural, [kind == wrapping for kind in kinds], self.width - indent)
        widths = [max(width - gap, 0) for width, gap in zip(narrowed, gaps, strict=True)]
        for row in table:
            parts = [
                cell.wrapped(max(width, 1)) if kind == wrapping else [cell.part(0, len(fitting(cell.plain, width)))]
                for cell, width, kind in zip(row, widths, kinds, strict=True)
            ]
            for number in range(max(map(len, parts))):
                shown = " " * indent
                for part, width, kind, gap in zip(parts, widths, kinds, gaps, strict=True):
                    piece = part[number] if number < len(part) else StyledText()
                    space, drawn = " " * (width - piece.num_cells), self._drawn(piece)
                    shown += (space + drawn if kind == "r" else drawn + space) + " " * gap
                self._lines.append(shown)

    def _row(self, line: list[str], styles: list[str], kinds: str, widths: list[int], indent: int) -> None:
        shown = ""
        for text, style, kind, width in zip(line, styles, kinds, widths, strict=True):
            space = " " * (width - cells(text))
            shown += (space + self._styled(text, style) if kind == "r" else self._styled(text, style) + space) + "  "
        self._lines.append(" " * indent + shown.rstrip())

    def _known_line(self, line: StyledText) -> StyledText:
        known = StyledText()
        known.spans = [(self._known(text), style) for text, style in line.spans]
        return known

    def _drawn(self, line: StyledText) -> str:
        return "".join(self._styled(text, style) for text, style in line.spans)

    def _known(self, text: str) -> str:
        """Returns text in the available characters.

        This happens before its width is measured, since ASCII replacements may be wider.
        """
        return text if self.look.unicode else in_ascii(text)

    def _styled(self, text: str, style: str) -> str:
        if not self.look.color or not style or not text:
            return text
        return f"\x1b[{';'.join(_CODES[word] for word in style.split())}m{text}\x1b[0m"

    def finish(self) -> str:
        """Returns the page."""
        return "\n".join(line.rstrip() for line in self._lines) + "\n"


def _styled_text(cell: Cell | StyledText) -> StyledText:
    if isinstance(cell, StyledText):
        return cell
    return StyledText(cell) if isinstance(cell, str) else StyledText(*cell)


def _narrowed(widths: list[int], wraps: list[bool], room: int) -> list[int]:
    """Returns column widths that fit ``room``: the widest wrapping columns shrink first, then all of them."""
    while (excess := sum(widths) - room) > 0:
        widest = max((width for width, wraps_here in zip(widths, wraps, strict=True) if wraps_here), default=0)
        if not widest:
            return _reduced(widths, [True] * len(widths), widths, excess)
        which = [wraps_here and width == widest for width, wraps_here in zip(widths, wraps, strict=True)]
        second = max(
            width if wraps_here and width != widest else 0 for width, wraps_here in zip(widths, wraps, strict=True)
        )
        widths = _reduced(widths, which, [widest - second] * len(widths), excess)
    return widths


def _reduced(widths: list[int], which: list[bool], most: list[int], excess: int) -> list[int]:
    """Returns widths, some of which shrink evenly, each within its limit, until ``excess`` columns are removed."""
    left = [limit > 0 and chosen for chosen, limit in zip(which, most, strict=True)]
    number, found = sum(left), []
    for width, chosen, limit in zip(widths, left, most, strict=True):
        less = min(limit, round(excess / number)) if chosen else 0
        found.append(width - less)
        excess, number = excess - less, number - chosen
    return found
