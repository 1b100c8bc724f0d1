"""A list widget that builds only the visible rows of possibly a million."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from memdiag.tui.lines import Lines

_CONSOLE = Console(color_system="truecolor", width=1000, file=StringIO())  # only to convert style names into styles


def to_strip(text: Text, width: int, style: Style) -> Strip:
    """Returns a line of text in exactly ``width`` cells; ``style`` is the base style."""
    segments = [Segment(part.text, part.style) for part in text.render(_CONSOLE) if part.text and part.text != "\n"]
    return Strip(segments).adjust_cell_length(width).apply_style(style)


class Rows(ScrollView):
    """Shows ``Lines`` with a cursor. Keys are handled by the screen, the mouse here."""

    can_focus = False
    COMPONENT_CLASSES = {"rows--cursor", "rows--head"}  # noqa: RUF012 - textual's own form
    DEFAULT_CSS = """
    Rows { overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    Rows > .rows--cursor { background: #264f78; color: #ffffff; text-style: bold; }
    Rows > .rows--head { color: $text-muted; text-style: bold; }
    Rows:nocolor > .rows--cursor { text-style: reverse; }
    """

    class Chosen(Message):
        """A row was clicked a second time."""

    class Titled(Message):
        """The header was clicked, ``x`` columns from the left."""

        def __init__(self, x: int) -> None:
            super().__init__()
            self.x = x

    class Moved(Message):
        """The cursor moved to another row."""

    def __init__(self, lines: Lines, name: str) -> None:
        super().__init__(id=name)
        self.lines = lines
        self.cursor = 0
        self.has_cursor = True

    def put(self, lines: Lines, *, keep: bool = True) -> None:
        """Shows other lines; with ``keep`` the cursor stays in its row if possible."""
        self.lines = lines
        self.cursor = min(self.cursor, max(len(lines) - 1, 0)) if keep else 0
        self._measure()
        self.scroll_to_row()
        self.refresh()

    def move(self, by: int) -> None:
        """Moves the cursor (or, without one, the lines) by some rows."""
        if not self.has_cursor:
            self.scroll_to(y=self.scroll_offset.y + by, animate=False)
            return
        self.move_to(self.cursor + by)

    def move_to(self, row: int) -> None:
        """Moves the cursor to a row, or to the nearest one."""
        if not self.has_cursor:
            self.scroll_to(y=row, animate=False)
            return
        row = min(max(row, 0), max(len(self.lines) - 1, 0))
        if row != self.cursor:
            self.cursor = row
            self.post_message(self.Moved())
        self.scroll_to_row()
        self.refresh()

    @property
    def page(self) -> int:
        """Number of visible rows."""
        return max(self.size.height - self._num_heads, 1)

    def scroll_to_row(self) -> None:
        """Scrolls so that the cursor is visible."""
        if not self.has_cursor:
            return
        top = self.scroll_offset.y
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False)
        elif self.cursor >= top + self.page:
            self.scroll_to(y=self.cursor - self.page + 1, animate=False)

    def render_line(self, y: int) -> Strip:
        """Draws line ``y`` of the visible part."""
        width = self.size.width
        base = self.rich_style
        if y < self._num_heads:
            head = self.lines.head(width) or Text()
            return to_strip(head, width, base + self.get_component_rich_style("rows--head", partial=True))
        row = y - self._num_heads + self.scroll_offset.y
        if row >= len(self.lines):
            said = self.lines.empty if not len(self.lines) and row == 1 else ""
            return to_strip(Text(f"  {said}", style="dim"), width, base)
        style = base
        if row == self.cursor and self.has_cursor:
            style = base + self.get_component_rich_style("rows--cursor", partial=True)
        return to_strip(self.lines.line(row, width), width, style)

    def on_resize(self, _: events.Resize) -> None:
        """Keeps the cursor visible."""
        self._measure()
        self.scroll_to_row()

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor, or chooses its row."""
        if event.y < self._num_heads:
            self.post_message(self.Titled(event.x))
            return
        row = event.y - self._num_heads + self.scroll_offset.y
        if row >= len(self.lines) or not self.has_cursor:
            return
        if row == self.cursor:
            self.post_message(self.Chosen())
        else:
            self.move_to(row)

    @property
    def _num_heads(self) -> int:
        return 1 if self.lines.head(max(self.size.width, 1)) is not None else 0

    def _measure(self) -> None:
        self.virtual_size = Size(max(self.size.width, 1), len(self.lines) + self._num_heads)
