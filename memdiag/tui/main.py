"""The main screen with the actions of its keys and the mouse."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len
from textual import events

from memdiag.text import phrase
from memdiag.tui import curve_lines, keys
from memdiag.tui.lines import short
from memdiag.tui.lists import CALLS, FINDINGS, MAP, TENSORS, Lists, title_of
from memdiag.tui.parts import ScreenParts
from memdiag.tui.pieces import Drawn, Popup
from memdiag.tui.question import Question
from memdiag.tui.rows import Rows
from memdiag.tui.walk import PAN, ZOOM, Kind

_ACTIONS = dict(keys.all_keys())
_PAGE_KEPT = 1  # rows of a page that remain visible


class MainScreen(ScreenParts, inherit_bindings=False):
    """Everything but the popups."""

    # ------------------------------------------------------------------------------------------------------------- time

    def _plot(self) -> int:
        return curve_lines.plot_width(self.size.width)

    def action_columns(self, number: int) -> None:
        """Moves the moment by columns."""
        if self._walk is not None:
            self._moved(self._walk.by_columns(number, self._plot()))

    def action_events(self, number: int) -> None:
        """Moves the moment by events."""
        if self._walk is not None:
            self._moved(self._walk.by_events(number))

    def action_peak(self) -> None:
        """Goes to a peak."""
        if self._walk is not None:
            self._moved(self._walk.to_peak())

    def action_next(self, kind: Kind) -> None:
        """Goes to the next event of a kind."""
        if self._walk is not None:
            self._moved(self._walk.to_next(kind))

    def action_previous(self, kind: Kind) -> None:
        """Goes to the previous event of a kind."""
        if self._walk is not None:
            self._moved(self._walk.to_next(kind, back=True))

    def action_zoom(self, way: int) -> None:
        """Zooms in or out around the moment."""
        if self._walk is not None:
            self._say(self._walk.zoom(1 / ZOOM if way > 0 else ZOOM))
            self._redraw()

    def action_whole(self) -> None:
        """Shows the whole trace."""
        if self._walk is not None:
            self._say(self._walk.zoom_out_fully())
            self._redraw()

    def action_pan(self, way: int) -> None:
        """Pans the timeline."""
        if self._walk is not None:
            self._say(self._walk.pan(way * PAN))
            self._redraw()

    def action_device(self) -> None:
        """Shows the next device."""
        if self._walk is not None:
            self._moved(self._walk.next_device())

    def on_drawn_clicked(self, message: Drawn.Clicked) -> None:
        """Handles mouse clicks."""
        name, walk = message.drawn.id, self._walk
        if walk is None:
            return
        column = min(max(message.x - curve_lines.LABEL - 1, 0), self._plot() - 1)
        if name == "curve" and message.by and len(walk.here.window):
            self._say(walk.zoom(1 / ZOOM if message.by > 0 else ZOOM, walk.here.window.event_of(column, self._plot())))
            self._redraw()
        elif name == "curve" and not message.by:
            self._moved(walk.to_column(column, self._plot()))
        elif name == "tabs" and not message.by:
            place = message.x
            for number, title in enumerate(self._tab_titles()):
                if 0 <= place < cell_len(title):
                    self._show_list(number, keep=False)
                place -= cell_len(title)
        elif name == "keys" and not message.by:
            self._click_key(message.x - 1)

    def _click_key(self, place: int) -> None:
        for words, action in keys.bottom_line(self.size.width - 1):
            if 0 <= place < cell_len(words):
                self.run_worker(self.run_action(action))
            place -= cell_len(words) + 2

    # ------------------------------------------------------------------------------------------------------------ lists

    def action_show(self, number: int) -> None:
        """Shows a list."""
        if self._lists is not None and number < self._lists.count:
            self._show_list(number, keep=False)
        else:
            self._say(phrase("screen.card.none"))

    def action_turn(self, by: int) -> None:
        """Shows the next list."""
        if self._lists is not None:
            self._show_list((self._number + by) % self._lists.count, keep=False)

    def action_rows(self, by: int) -> None:
        """Moves the cursor of the list."""
        self.rows.move(by)

    def action_pages(self, by: int) -> None:
        """Moves the cursor by a page."""
        self.rows.move(by * max(self.rows.page - _PAGE_KEPT, 1))

    def action_first_row(self) -> None:
        """Goes to the first row."""
        self.rows.move_to(0)

    def action_last_row(self) -> None:
        """Goes to the last row."""
        self.rows.move_to(len(self.rows.lines) - 1)

    def on_rows_chosen(self) -> None:
        """Handles a click on a row."""
        self.action_choose()

    def on_rows_moved(self) -> None:
        """Handles a cursor movement to another row."""
        self.query_one("#side", Drawn).again()

    def on_rows_titled(self, message: Rows.Titled) -> None:
        """Sorts the rows by the clicked column title."""
        if self._lists is not None and self._lists.order_by(self._number, message.x, self.rows.size.width):
            self._show_list(self._number, keep=False)

    def action_choose(self) -> None:
        """Opens a row: in place in the tree and the map, in a popup elsewhere."""
        if self._lists is None or not len(self.rows.lines):
            return
        if self._lists.toggle(self._number, self.rows.cursor):
            self._show_list(self._number)
        else:
            self.action_detail()

    def action_detail(self) -> None:
        """Shows all details of a row."""
        lines = self.rows.lines
        if self._lists is None or not 0 <= self.rows.cursor < len(lines):
            return
        text = lines.detail(self.rows.cursor)
        if text is not None:
            copies = self._lists.changes(self._number, self.rows.cursor)
            self.app.push_screen(Popup(title_of(self._number), text, tuple(copies)), self._copied)

    def action_copy(self) -> None:
        """Copies the first line to paste of a finding's fixes."""
        changes = (
            self._lists.changes(self._number, self.rows.cursor)
            if self._lists is not None and len(self.rows.lines)
            else []
        )
        if changes:
            self._copied(changes[0])
        else:
            self._say(phrase("screen.nothing-to-copy"))

    def _copied(self, line: str | None) -> None:
        if line:
            self._copy_line(line)
            self._say(phrase("screen.copied", line=short(line, 200)))

    def action_by(self) -> None:
        """Switches between categories and lifetimes."""
        if self._walk is not None:
            self._moved(self._walk.next_by())

    def action_scale(self) -> None:
        """Switches between one scale for all segments and full width for each."""
        if self._lists is not None:
            said = self._lists.next_scale()
            self._show_list(MAP)
            self._say(said)

    def action_order(self) -> None:
        """Orders the list by the next column."""
        self._ordered(self._lists is not None and self._lists.next_order(self._number))

    def action_backwards(self) -> None:
        """Reverses the order of the list."""
        self._ordered(self._lists is not None and self._lists.turn_order(self._number))

    def _ordered(self, changed: bool) -> None:
        if changed:
            self._show_list(self._number, keep=False)
        else:
            self._say(phrase("screen.not-ordered"))

    def action_invert(self) -> None:
        """Inverts the call tree."""
        self._arranged(lambda lists: lists.invert())

    def action_frames(self) -> None:
        """Switches the frames of the call tree."""
        self._arranged(lambda lists: lists.next_frames())

    def action_unfold(self) -> None:
        """Opens the path with the most bytes, or closes all."""
        self._arranged(lambda lists: lists.unfold(self.rows.cursor))

    # -------------------------------------------------------------------------------------------------------- questions

    def action_ask_filter(self) -> None:
        """Asks for a filter text."""
        if self._lists is None:
            return
        if self._number not in {TENSORS, FINDINGS, CALLS}:
            self._show_list(0, keep=False)
        self._ask("filter", self._lists.text)

    def action_ask_event(self) -> None:
        """Asks for an event."""
        if self._walk is not None:
            self._ask("event", "")

    def _ask(self, what: str, text: str) -> None:
        self._asking = Question(what, text)
        self.query_one("#keys", Drawn).again()

    def _answer(self, key: str, character: str | None) -> None:
        """Handles a key while a question is open."""
        asked = self._asking
        if asked is None:
            return
        if key in {"enter", "escape", "ctrl+c"}:
            self._asking = None
            if asked.what == "event" and key == "enter" and self._walk is not None:
                self._moved(self._walk.to_text(asked.text))
            elif asked.what == "filter" and key != "enter":
                self._look_for("")
        elif asked.typed(key, character) and asked.what == "filter":
            self._look_for(asked.text)
        self.query_one("#keys", Drawn).again()

    def _look_for(self, text: str) -> None:
        if self._lists is not None and text != self._lists.text:
            self._lists.text = text
            self._moved()

    async def on_key(self, event: events.Key) -> None:
        """Handles a key.

        Bindings are not used: for keys in quick succession they are looked up before earlier keys have taken effect.
        """
        event.stop()
        event.prevent_default()
        if self._asking is not None:
            self._answer(event.key, event.character)
        elif event.key in _ACTIONS:
            await self.run_action(_ACTIONS[event.key])

    def on_paste(self, event: events.Paste) -> None:
        """Handles a pasted text for the question."""
        event.stop()
        if self._asking is not None:
            self._asking.pasted(event.text)
            if self._asking.what == "filter":
                self._look_for(self._asking.text)
            self.query_one("#keys", Drawn).again()

    def action_no_filter(self) -> None:
        """Removes the filter."""
        if self._lists is not None and self._lists.text:
            self._look_for("")
        else:
            self._say("")

    # ---------------------------------------------------------------------------------------------------------- program

    def action_help(self) -> None:
        """Shows the keys."""
        self.app.push_screen(Popup(phrase("screen.keys"), keys.help_text()))

    def action_quit(self) -> None:
        """Ends the application."""
        self.app.exit()

    def action_suspend(self) -> None:
        """Suspends to the shell."""
        self.app.action_suspend_process()

    def _arranged(self, change: Callable[[Lists], str]) -> None:
        if self._lists is None:
            return
        if self._number != CALLS:
            self._show_list(CALLS, keep=False)
        self._say(change(self._lists))
        self._show_list(self._number)
