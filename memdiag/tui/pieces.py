"""The one-line widgets of the screen, the timeline, and popups."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from memdiag.text import phrase
from memdiag.tui.lines import folded
from memdiag.tui.rows import to_strip


class Drawn(Widget):
    """Lines that a function creates for the available width and height.

    Args:
        draw: Returns the lines.
        name: Name of the widget.
    """

    can_focus = False

    def __init__(self, draw: Callable[[int, int], list[Text]], name: str) -> None:
        super().__init__(id=name)
        self._draw = draw
        self._made: tuple[tuple[int, int], list[Text]] | None = None

    def again(self) -> None:
        """Redraws, since the content has changed."""
        self._made = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draws one line."""
        size = (self.size.width, self.size.height)
        if self._made is None or self._made[0] != size:
            self._made = size, self._draw(*size)
        lines = self._made[1]
        return to_strip(lines[y] if y < len(lines) else Text(), size[0], self.rich_style)

    class Clicked(Message):
        """A click or (``by``) a scroll, ``x`` columns from the left."""

        def __init__(self, drawn: Drawn, x: int, by: int = 0) -> None:
            super().__init__()
            self.drawn = drawn
            self.x = x
            self.by = by

    def on_click(self, event: events.Click) -> None:
        """Posts the position."""
        event.stop()
        self.post_message(self.Clicked(self, event.x))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Posts the position and the direction."""
        self.post_message(self.Clicked(self, event.x, 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Posts the position and the direction."""
        self.post_message(self.Clicked(self, event.x, -1))


_SHARE, _WIDEST, _FRAME = 92, 120, 6  # per cent of the width, columns, and columns of border, margin and scroll bar


class Popup(ModalScreen[str]):
    """A scrolling text over the screen.

    Args:
        title: Its title.
        text: The text.
        copies: Lines that the keys 1 to 9 copy (c: the first).
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,space,question_mark,f1", "close", show=False),
        Binding("ctrl+c,ctrl+q", "app.quit", show=False, priority=True),
        Binding("up,k", "by(-1)", show=False),
        Binding("down,j", "by(1)", show=False),
        Binding("pageup", "by(-10)", show=False),
        Binding("pagedown", "by(10)", show=False),
        Binding("c", "copy(1)", show=False),
        *(Binding(str(number), f"copy({number})", show=False) for number in range(1, 10)),
    ]
    DEFAULT_CSS = f"""
    Popup {{ align: center middle; }}
    Popup > VerticalScroll {{ width: {_SHARE}%; max-width: {_WIDEST}; height: auto; max-height: {_SHARE}%; \
border: round $accent;
                             padding: 0 1; background: $surface; scrollbar-size-vertical: 1; }}
    Popup Static {{ width: 100%; height: auto; }}
    """

    def __init__(self, title: str, text: Text, copies: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._copies = copies

    def compose(self) -> ComposeResult:
        """Makes the window."""
        with VerticalScroll() as box:
            inside = min(int(self.app.size.width * _SHARE / 100), _WIDEST) - _FRAME
            yield Static(Text("\n").join(folded(self._text, inside)), markup=False)
        box.can_focus = False
        chosen = "c" if len(self._copies) == 1 else f"1-{min(len(self._copies), 9)}"
        box.border_title = self._title
        box.border_subtitle = phrase("screen.popup.copy", keys=chosen) if self._copies else phrase("screen.popup")

    def action_close(self) -> None:
        """Closes it."""
        self.dismiss("")

    def action_by(self, rows: int) -> None:
        """Scrolls it."""
        box = self.query_one(VerticalScroll)
        box.scroll_to(y=box.scroll_offset.y + rows, animate=False)

    def action_copy(self, number: int) -> None:
        """Copies a line and closes the popup."""
        if number <= len(self._copies):
            self.dismiss(self._copies[number - 1])
