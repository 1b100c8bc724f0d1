"""A page of text for a terminal: paragraphs, grids and lines to paste, in a given width and character set.

Lines to paste are never wrapped: a terminal that is too narrow wraps them itself, and they still copy as one line.
"""

from __future__ import annotations

import io
import re

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from memdiag.render.support.look import Look
from memdiag.text import in_ascii

NARROWEST, WIDEST = 40, 132
WIDE = 110
NARROW = 60
_CUT_AMOUNT = re.compile(r"\s?\S*\d( [KMGT]?i?B?)?…$")


class Page:
    """Collects what is printed.

    Args:
        look: Of the place it goes to; its width is kept between 40 and 132 columns.
    """

    def __init__(self, look: Look) -> None:
        self.look = look
        self.width = min(max(look.width, NARROWEST), WIDEST)
        self._out = io.StringIO()
        self._console = Console(
            file=self._out,
            width=self.width,
            force_terminal=look.color,
            color_system="standard" if look.color else None,
            no_color=not look.color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            force_jupyter=False,
            force_interactive=False,
            _environ={},
        )

    @property
    def wide(self) -> bool:
        """Whether there is room for more than 80 columns hold."""
        return self.width >= WIDE

    @property
    def narrow(self) -> bool:
        """Whether there is no room for explanations beside numbers."""
        return self.width < NARROW

    def add(self, what: RenderableType) -> None:
        """Adds anything that rich can draw."""
        self._console.print(what)

    def text(self, line: str, style: str = "", indent: int = 0) -> None:
        """Adds a paragraph, wrapped."""
        shown = Text(line, style=style, overflow="fold")
        self.add(indented(shown, indent) if indent else shown)

    def paste(self, line: str, indent: int) -> None:
        """Adds one line to copy: never wrapped, never cut."""
        self._console.print(Text(" " * indent + line, style="bold"), soft_wrap=True)

    def gap(self) -> None:
        """Adds an empty line."""
        self._console.print()

    def title(self, title: str, after: str = "") -> None:
        """Adds the title of a section, with something dim behind it."""
        self.gap()
        line = Text(title, style="bold underline" if self.look.color else "bold")
        if after:
            line.append("  " + after, style="not underline not bold dim")
        self.add(line)

    def finish(self) -> str:
        """Returns the page."""
        shown = "\n".join(line.rstrip() for line in self._out.getvalue().splitlines()) + "\n"
        return shown if self.look.unicode else in_ascii(shown)


def shorten(text: Text, width: int) -> Text:
    """Cuts ``text`` to ``width`` columns, with an ellipsis; a number is left out rather than cut, or parted from its unit."""
    if text.cell_len > width:
        text.truncate(width, overflow="ellipsis")
        if amount := _CUT_AMOUNT.search(text.plain):
            text.right_crop(len(amount.group()))
            text.append("…")
    return text


def new_grid(*justify: str, padding: int = 2) -> Table:
    """Returns a table without lines; a column is "l", "r", or "w": it takes the rest and wraps.

    In a narrow terminal text on the left wraps if there is no "w", and numbers on the right keep their units.
    """
    table = Table.grid(padding=(0, padding, 0, 0))
    wrapping = "w" if "w" in justify else "l"
    for kind in justify:
        is_rest = kind == "w"
        table.add_column(
            justify="right" if kind == "r" else "left",
            ratio=1 if is_rest else None,
            no_wrap=kind != wrapping,
            overflow="fold",
        )
    return table


def indented(what: RenderableType, indent: int = 2) -> Table:
    """Returns ``what`` with some columns to its left."""
    outer = Table.grid()
    outer.add_column(width=indent)
    outer.add_column(ratio=1)
    outer.add_row("", what)
    return outer
