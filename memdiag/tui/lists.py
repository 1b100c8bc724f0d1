"""The lists of the screen: their filter and order. Only the visible one is built."""

from __future__ import annotations

from memdiag.results.report import Report
from memdiag.text import phrase
from memdiag.tui import map_lines, tensor_lines
from memdiag.tui.about_lines import AboutLines
from memdiag.tui.call_lines import CallLines
from memdiag.tui.finding_lines import FindingLines
from memdiag.tui.ledger_lines import LedgerLines
from memdiag.tui.lines import Lines, short
from memdiag.tui.map_lines import MapLines
from memdiag.tui.models.call_tree import FRAMES, CallTree
from memdiag.tui.models.segment_rows import ORDERS as MAP_ORDERS
from memdiag.tui.tensor_lines import TensorLines
from memdiag.tui.walk import OneDevice, Walk

NAMES: tuple[str, ...] = ("tensors", "findings", "calls", "map", "about", "card")
TENSORS, FINDINGS, CALLS, MAP, ABOUT, CARD = range(6)
_HOT = 0.5  # fraction of a call's bytes that its largest child needs for the largest path to continue


def title_of(number: int) -> str:
    """Returns the title of a list."""
    return phrase(f"screen.list.{NAMES[number]}")


class Lists:
    """Builds lists for the current moment on demand.

    Attributes:
        text: Filter for tensors, calls and findings.
    """

    def __init__(self, walk: Walk, *, color: bool = True) -> None:
        self._walk, self._color = walk, color
        self.text = ""
        self._order, self._backwards = "bytes", False
        self._map_order = MAP_ORDERS[0]
        self._to_scale = True
        self._opened: set[int] = set()
        self._made: dict[int, tuple[object, Lines]] = {}
        self._unfolded: set[int] = set()
        self._report: Report | None = None
        self._error = ""
        self.about = AboutLines(walk.trace, None)

    @property
    def count(self) -> int:
        """Number of lists: that of the card needs samples."""
        return len(NAMES) if any(len(device.samples) for device in self._walk.trace.devices) else CARD

    @property
    def findings(self) -> FindingLines:
        """The findings."""
        found = self.lines(FINDINGS)
        assert isinstance(found, FindingLines)  # noqa: S101
        return found

    def take(self, report: Report | None, error: str) -> None:
        """Takes the diagnosis."""
        self._report, self._error = report, error
        self.about = AboutLines(self._walk.trace, report)
        self._made.pop(FINDINGS, None)

    def lines(self, number: int) -> Lines:
        """Returns a list; it is rebuilt if the moment, the filter or the order has changed."""
        if number == ABOUT:
            return self.about
        here = self._walk.here
        shown = self._order, self._backwards, self._map_order, self._to_scale, self._walk.by
        key: tuple[object, ...] = (here.device.device, here.at, self.text, *shown, id(self._report))
        if number == FINDINGS:
            key = (self.text, id(self._report), self._error)
        if number not in self._made or self._made[number][0] != key:
            self._made[number] = key, self._make(number, here)
        return self._made[number][1]

    def summary(self, number: int) -> str:
        """Returns the text next to the titles."""
        lines = self.lines(number)
        if isinstance(lines, CallLines):
            return (
                phrase("screen.filtered", text=short(self.text, 20), summary=lines.summary())
                if self.text
                else lines.summary()
            )
        return (
            lines.summary()
            if isinstance(lines, TensorLines | FindingLines | MapLines | AboutLines | LedgerLines)
            else ""
        )

    def changes(self, number: int, row: int) -> list[str]:
        """Returns the lines that can be copied in a row."""
        lines = self.lines(number)
        return lines.changes(row) if isinstance(lines, FindingLines) and row < len(lines) else []

    def toggle(self, number: int, row: int) -> bool:
        """Opens or closes a row in place; returns whether the row supports that."""
        lines = self.lines(number)
        if isinstance(lines, MapLines):
            return lines.toggle(row)
        if isinstance(lines, CallLines) and lines.nodes[row].opens:
            self._walk.here.calls.toggle(lines.nodes[row].path)
            self._made.pop(number)
            return True
        return False

    def next_order(self, number: int) -> bool:
        """Sorts by the next column; returns whether this list has columns."""
        if number == TENSORS:
            lines = self.lines(number)
            self._order = tensor_lines.next_order(self._order)
            if isinstance(lines, TensorLines) and self._order == "name" and not self._walk.here.live.has_names:
                self._order = tensor_lines.next_order(self._order)
            self._backwards = False
        elif number == MAP:
            self._map_order = map_lines.next_order(self._map_order)
        return number in {TENSORS, MAP}

    def turn_order(self, number: int) -> bool:
        """Reverses the order; returns whether this list supports that."""
        if number == TENSORS:
            self._backwards = not self._backwards
        return number == TENSORS

    def order_by(self, number: int, place: int, width: int) -> bool:
        """Sorts by the column with its title at a position; a second time reverses the order.

        Returns whether there is one.
        """
        lines = self.lines(number)
        column = lines.column_at(place, width) if isinstance(lines, TensorLines) else None
        if column is None:
            return False
        self._order, self._backwards = column, self._order == column and not self._backwards
        return True

    def next_scale(self) -> str:
        """Switches between one scale for all segments and full width for each; returns a text to show."""
        self._to_scale = not self._to_scale
        return phrase("screen.scale.one" if self._to_scale else "screen.scale.each")

    def invert(self) -> str:
        """Inverts the tree; returns a text to show."""
        tree = self._tree()
        tree.arrange(inverted=not tree.inverted)
        self._made.pop(CALLS, None)
        return phrase("screen.inverted" if tree.inverted else "screen.upright")

    def next_frames(self) -> str:
        """Switches the frames of the tree; returns a text to show."""
        tree = self._tree()
        tree.arrange(frames=FRAMES[(FRAMES.index(tree.frames) + 1) % len(FRAMES)])
        self._made.pop(CALLS, None)
        return phrase("screen.frames.made", frames=phrase(f"screen.frames.{tree.frames}"))

    def unfold(self, row: int) -> str:
        """Opens the path with the most bytes below a row, or closes all if that is open."""
        tree = self._tree()
        lines = self.lines(CALLS)
        if not isinstance(lines, CallLines) or not len(lines):
            return ""
        node = lines.nodes[min(row, len(lines) - 1)]
        if node.is_open or not node.opens:
            tree.close_all()
        else:
            tree.open_chain(node.path, share=_HOT)
        self._made.pop(CALLS, None)
        return ""

    def _tree(self) -> CallTree:
        self.lines(CALLS)
        return self._walk.here.calls

    def _make(self, number: int, here: OneDevice) -> Lines:
        if number == TENSORS:
            return TensorLines(here, here.at, self.text, self._order, self._backwards, self._walk.by)
        if number == FINDINGS:
            return FindingLines(self._report, self.text, self._error)
        if number == CALLS:
            self._weigh(here)
            return CallLines(here)
        if number == CARD:
            return LedgerLines(here, color=self._color)
        return MapLines(here, here.at, self._map_order, self._opened, self._walk.by, self._to_scale)

    def _weigh(self, here: OneDevice) -> None:
        """Gives the tree the tensors of the moment; the first time, it is opened along the path with the most bytes."""
        here.calls.weigh(here.live.at(here.at, self.text).rows)
        if here.device.device not in self._unfolded and here.calls.total_bytes:
            self._unfolded.add(here.device.device)
            here.calls.open_chain((), share=_HOT)
