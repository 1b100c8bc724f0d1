"""The memory map as rows: segments, each with a bar of its usage, and in open ones their blocks and free ranges."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property

from rich.text import Text

from memdiag import vocabulary
from memdiag.analyzers.support.places import group_name
from memdiag.text import phrase
from memdiag.trace.schema import CATEGORIES, LIFETIMES
from memdiag.tui.lines import DIM, FREE, HELD, STRONG, WAITING, Lines, cell, fitted
from memdiag.tui.models.segment_rows import FREE as NOT_USED
from memdiag.tui.models.segment_rows import ORDERS, PENDING, SegmentRows
from memdiag.tui.tensor_lines import stack_text
from memdiag.tui.walk import By, OneDevice
from memdiag.units import format_bytes
from memdiag.views.heap import CAUSES

_STATES = {NOT_USED: ("·", FREE), PENDING: ("▒", WAITING)}


@dataclass
class MapLines(Lines):
    """The rows.

    Attributes:
        order: One of ``views.segment_rows.ORDERS``.
        opened: Starts of open segments; they are kept when the moment changes.
        by: Classes shown as colours.
        to_scale: Whether one character stands for the same number of bytes in every segment; otherwise each segment has
            full width.
    """

    here: OneDevice
    at: int
    order: str = ORDERS[0]
    opened: set[int] = field(default_factory=set)
    by: By = "category"
    to_scale: bool = True

    def __post_init__(self) -> None:
        self.empty = phrase("screen.map.empty" if self.here.device.has_addresses else "screen.map.none")
        self.rows = SegmentRows(self.here.trace, self.here.device, self.at) if self.here.device.has_addresses else None
        self._segments: list[int] = []
        self._firsts: list[int] = []  # the row of each segment
        self._num = 0
        self.arrange()

    def arrange(self) -> None:
        """Recomputes the rows after segments were opened or closed."""
        if self.rows is None:
            return
        self._segments = self.rows.in_order(self.order).tolist()
        self._firsts, self._num = [], 0
        starts = self.rows.topology.segments["start"]
        for number in self._segments:
            self._firsts.append(self._num)
            self._num += 1 + (self.rows.num_ranges(number) if int(starts[number]) in self.opened else 0)

    def __len__(self) -> int:
        return self._num

    def summary(self) -> str:
        """Returns the number of segments, and their order."""
        if self.rows is None:
            return ""
        order, by = phrase(f"screen.column.{self.order.replace(' ', '-')}"), phrase(f"screen.column.{self.by}")
        return phrase("screen.map.summary", count=len(self.rows), order=order, by=by)

    def toggle(self, number: int) -> bool:
        """Opens or closes the segment in a row; returns whether the row is a segment."""
        segment, place = self._at(number)
        if place >= 0 or self.rows is None:
            return False
        start = int(self.rows.topology.segments["start"][segment])
        self.opened ^= {start}
        self.arrange()
        return True

    def head(self, width: int) -> Text | None:
        """Returns the titles."""
        if self.rows is None:
            return None
        line = Text(no_wrap=True, end="")
        titles = [
            ("address", 17, False),
            ("size", 10, True),
            ("free", 10, True),
            *([("pool", 11, False)] if width >= 70 else []),
        ]
        for title, room, right in titles:
            shown = ("" if right or title == "pool" else "  ") + phrase(f"screen.column.{title}")
            line.append_text(cell(shown, room, STRONG, right=right)).append(" ")
        room = max(width - line.cell_len, 1)
        each = -(-self._largest // room)
        scale = phrase("screen.map.scale", bytes=format_bytes(each)) if self.to_scale else phrase("screen.map.no-scale")
        return line.append_text(cell(scale, room, STRONG))

    def line(self, number: int, width: int) -> Text:
        """Returns a segment, or a block or free range in one."""
        segment, place = self._at(number)
        return self._segment(segment, width) if place < 0 else self._range(segment, place, width)

    def _at(self, number: int) -> tuple[int, int]:
        place = bisect_right(self._firsts, number) - 1
        return self._segments[place], number - self._firsts[place] - 1

    def _segment(self, number: int, width: int) -> Text:
        assert self.rows is not None  # noqa: S101 - there are rows
        segment = self.rows.segment(number)
        mark = "▾" if segment.start in self.opened else "▸"
        line = Text(no_wrap=True, end="").append_text(cell(f"{mark} {segment.start:#x}", 17)).append(" ")
        line.append_text(cell(format_bytes(segment.size), 10, right=True)).append(" ")
        line.append_text(cell(format_bytes(segment.free), 10, right=True)).append(" ")
        if width >= 70:
            line.append_text(cell(self._pool(segment.group), 11, DIM)).append(" ")
        room = max(width - line.cell_len, 4)
        columns = max(round(segment.size / self._largest * room), 1) if self.to_scale else room
        return line.append_text(self._bar(number, columns))

    def _pool(self, group: int) -> str:
        groups = self.here.device.groups
        if group < 0:
            return ""
        private = bool(groups.pool_major[group] or groups.pool_minor[group])
        size = phrase("screen.map.small" if groups.small[group] else "screen.map.large")
        return (phrase("screen.map.private", size=size) if private else size) + (" *" if groups.stream[group] else "")

    @cached_property
    def _largest(self) -> int:
        """Returns the bytes of the largest segment."""
        return int(self.rows.topology.segments["size"].max(initial=1)) if self.rows is not None else 1

    def _bar(self, number: int, width: int) -> Text:
        assert self.rows is not None  # noqa: S101 - as above
        line = Text(no_wrap=True, end="")
        classes, names = self.here.device.tensors[self.by], {"category": CATEGORIES, "lifetime": LIFETIMES}[self.by]
        for state, owner in zip(*self.rows.bar(number, width), strict=True):
            glyph, style = _STATES.get(state, ("█", HELD))
            if glyph == "█" and owner >= 0:
                style = vocabulary.color(self.by, names[classes[owner]])
            line.append(glyph, style)
        return line

    def _range(self, segment: int, place: int, width: int) -> Text:
        assert self.rows is not None  # noqa: S101 - as above
        found = self.rows.range(segment, place)
        line = Text(no_wrap=True, end="").append_text(cell(f"    +{found.offset:#x}", 17, DIM)).append(" ")
        line.append_text(cell(format_bytes(found.size), 10, right=True)).append(" ")
        room = max(width - line.cell_len - 11, 4)
        if found.tensor < 0:
            line.append("· ", FREE).append_text(cell(phrase("screen.map.free"), 9, FREE))
            return line.append_text(cell(vocabulary.name("part", CAUSES[found.cause]), room, FREE))
        live = self.here.live
        line.append("▒ " if found.pending else "█ ", WAITING if found.pending else HELD)
        line.append_text(cell(phrase("screen.map.pending") if found.pending else "", 9, WAITING))
        return line.append_text(
            fitted(live.name(found.tensor) or live.place(found.tensor) or phrase("summary.unknown"), room)
        )

    def detail(self, number: int) -> Text:
        """Returns all details of a segment, a block or a free range."""
        assert self.rows is not None  # noqa: S101 - as above
        index, place = self._at(number)
        segment = self.rows.segment(index)
        text = Text()
        key = "screen.segment.expandable" if segment.expandable else "screen.segment"
        text.append(phrase(key, address=f"{segment.start:#x}", bytes=format_bytes(segment.size)), STRONG).append("\n")
        text.append(f"{group_name(self.here.device, segment.group)}\n")
        sizes = {"bytes": format_bytes(segment.free), "largest": format_bytes(segment.largest_free)}
        text.append(phrase("screen.segment.free", count=segment.num_tensors, **sizes) + "\n\n")
        if place < 0:
            return text
        found = self.rows.range(index, place)
        text.append(
            phrase("screen.range", offset=found.offset, bytes=format_bytes(found.size), count=found.size) + "\n"
        )
        if found.tensor < 0:
            meaning, seen = vocabulary.meaning("part", CAUSES[found.cause]), self.rows.reference_bytes
            return text.append(
                phrase("screen.range.reference", meaning=meaning, bytes=format_bytes(seen)) if seen else meaning
            )
        live = self.here.live
        text.append_text(fitted(live.name(found.tensor) or phrase("screen.no-name"), 1000)).append("\n\n")
        return text.append_text(stack_text(self.here, int(self.here.device.tensors.stack[found.tensor])))


def next_order(order: str) -> str:
    """Returns the next order."""
    return ORDERS[(ORDERS.index(order) + 1) % len(ORDERS)]
