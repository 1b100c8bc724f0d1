"""The tensors live at a moment as rows of a table, with as many columns as fit."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from memdiag import vocabulary
from memdiag.analyzers.support.places import group_name
from memdiag.text import joined, phrase
from memdiag.trace.labels import notes_of
from memdiag.trace.schema import CATEGORIES, LIFETIMES, PHASES
from memdiag.tui.lines import DIM, STRONG, Lines, cell, fitted, short
from memdiag.tui.models.at_cursor import since_us
from memdiag.tui.models.live_rows import ORDERS
from memdiag.tui.walk import By, OneDevice
from memdiag.units import format_bytes, format_count, format_us

_FIXED = {"bytes": 10, "requested": 10, "category": 12, "lifetime": 13, "age": 9}
_LEAST = 16  # columns of a name or a call site
_BETWEEN = 1
# words that the table abbreviates, because their names are too long
_BRIEF = (
    "optimizer_state",
    "forward_to_backward",
    "survives_step",
    "within_step",
    "within_phase",
)
_ROOMY = 20  # columns beyond the minimum from which on the least important one is shown
_WORDS = 20  # characters of the filter
_FRAMES = 60  # of a stack


@dataclass
class TensorLines(Lines):
    """The table. ``text`` filters rows (see ``views.live_rows``), ``order`` is one of its ``ORDERS``."""

    here: OneDevice
    at: int
    text: str = ""
    order: str = "bytes"
    backwards: bool = False
    by: By = "category"

    def __post_init__(self) -> None:
        self.live = self.here.live.at(self.at, self.text, self.order, backwards=self.backwards)
        self.empty = phrase("screen.no-match" if self.text else "screen.no-tensor")

    def __len__(self) -> int:
        return len(self.live.rows)

    def summary(self) -> str:
        """Returns the number and bytes of the tensors."""
        if not self.text:
            return phrase("screen.tensors.summary", count=len(self), bytes=format_bytes(self.live.bytes))
        sizes = {"bytes": format_bytes(self.live.bytes), "whole": format_bytes(self.live.bytes_of_all)}
        return phrase(
            "screen.tensors.filtered", count=len(self), all=self.live.num_all, text=short(self.text, _WORDS), **sizes
        )

    def columns(self, width: int) -> dict[str, int]:
        """Returns the columns that fit, with their widths, from the left."""
        named = self.here.live.has_names
        wanted = ["bytes", "name"] if named else ["bytes", "place"]
        room = width - _FIXED["bytes"] - _LEAST - _BETWEEN
        for name in ("age", "category", "lifetime", *(("place",) if named else ()), "requested"):
            needed = _FIXED.get(name, _LEAST + 12) + _BETWEEN
            if room >= needed + (_ROOMY if name == "requested" else 0):
                wanted.append(name)
                room -= needed
        wide = [name for name in wanted if name in {"name", "place"}]
        share = (room + _LEAST + (len(wide) - 1) * (_LEAST + 12)) // len(wide)
        order = ("bytes", "requested", "category", "lifetime", "age", "name", "place")
        return {name: _FIXED.get(name, share) for name in order if name in wanted}

    def head(self, width: int) -> Text:
        """Returns the titles; the one of the sort column has an arrow."""
        line = Text(no_wrap=True, end="")
        for name, room in self.columns(width).items():
            title = phrase(f"screen.column.{name}") + (("▲" if self.backwards else "▼") if name == self.order else "")
            line.append_text(cell(title, room, STRONG, right=name in {"bytes", "requested", "age"})).append(" ")
        line.right_crop(1)
        return line

    def column_at(self, place: int, width: int) -> str | None:
        """Returns the column whose title is at a position of the header, or None."""
        for name, room in self.columns(width).items():
            if place < room:
                return name
            place -= room + _BETWEEN
        return None

    def line(self, number: int, width: int) -> Text:
        """Returns a tensor."""
        row = int(self.live.rows[number])
        line = Text(no_wrap=True, end="")
        for name, room in self.columns(width).items():
            line.append_text(self._cell(row, name, room)).append(" ")
        line.right_crop(1)
        return line

    def _cell(self, row: int, name: str, room: int) -> Text:
        tensors, live = self.here.device.tensors, self.here.live
        if name == "bytes":
            return cell(format_bytes(int(tensors.block_bytes[row])), room, right=True)
        if name == "requested":
            return cell(format_bytes(int(tensors.requested_bytes[row])), room, DIM, right=True)
        if name == "category":
            return self._class("category", CATEGORIES[tensors.category[row]], room)
        if name == "lifetime":
            return self._class("lifetime", LIFETIMES[tensors.lifetime[row]], room)
        if name == "age":
            return cell(self._age(row), room, DIM, right=True)
        if name == "name":
            return fitted(live.name(row) or live.place(row) or phrase("screen.no-stack"), room)
        return fitted(live.place(row) or phrase("screen.no-stack"), room, DIM)

    def _class(self, kind: By, name: str, room: int) -> Text:
        """Returns a category or lifetime, in its colour if colours stand for these."""
        return cell(brief(name), room, vocabulary.color(kind, name) if kind == self.by else DIM)

    def _age(self, row: int) -> str:
        device = self.here.device
        born = int(device.tensors.alloc_at[row])
        if born < 0 or self.at < 0:
            return "" if not device.num_events else phrase("screen.age.before")
        then, now = since_us(device, born), since_us(device, self.at)
        return (
            format_us(now - then)
            if then is not None and now is not None
            else phrase("screen.age.events", count=self.at - born)
        )

    def detail(self, number: int) -> Text:
        """Returns all details of a tensor."""
        row = int(self.live.rows[number])
        here, device = self.here, self.here.device
        tensors, live = device.tensors, here.live
        end = device.num_events
        pending = int(tensors.free_requested_at[row]) <= self.at
        facts = [
            ("name", short(live.name(row)) or phrase("summary.unknown")),
            ("bytes", f"{format_bytes(int(tensors.block_bytes[row]))} ({format_count(int(tensors.block_bytes[row]))})"),
            (
                "requested",
                (
                    f"{format_bytes(int(tensors.requested_bytes[row]))} "
                    f"({format_count(int(tensors.requested_bytes[row]))})"
                ),
            ),
            ("category", vocabulary.name("category", CATEGORIES[tensors.category[row]])),
            (
                "lifetime",
                vocabulary.lifetime(LIFETIMES[tensors.lifetime[row]], is_inferred=bool(tensors.lifetime_inferred[row])),
            ),
            (
                "made",
                _when(int(tensors.alloc_at[row]), end, int(tensors.step_alloc[row]), int(tensors.phase_alloc[row])),
            ),
            (
                "freed",
                _when(
                    int(tensors.free_requested_at[row]), end, int(tensors.step_free[row]), int(tensors.phase_free[row])
                ),
            ),
        ]
        if pending:
            facts.append(
                ("pending", phrase("screen.pending.until", event=_event(int(tensors.free_completed_at[row]), end)))
            )
        if device.has_addresses:
            facts += [
                ("address", f"{int(tensors.addr[row]):#x}"),
                ("pool", group_name(device, int(tensors.group[row]))),
            ]
        made = int(tensors.alloc_at[row])
        said = int(notes_of(here.trace, device)[made]) if made >= 0 else -1
        if said >= 0:
            facts.append(("metadata", short(here.trace.strings[said])))
        text = Text()
        for label, value in facts:
            text.append_text(cell(phrase(f"screen.column.{label}"), 10, DIM)).append(value + "\n")
        return text.append("\n").append_text(stack_text(here, int(tensors.stack[row])))


def stack_text(here: OneDevice, stack: int) -> Text:
    """Returns a call stack, innermost call first, with the user's own lines highlighted."""
    frames = here.trace.stacks[stack]
    if not frames:
        return Text(phrase("screen.stack.none"), style=DIM)
    text = Text(phrase("screen.stack") + "\n", style="")
    for frame in frames[:_FRAMES]:
        text.append(f"  {short(str(frame), 1000)}\n", STRONG if frame.is_user else DIM)
    if len(frames) > _FRAMES:
        text.append(f"  {phrase('verdict.more', count=len(frames) - _FRAMES)}\n", DIM)
    return text


def brief(name: str) -> str:
    """Returns the name of a category or lifetime in at most 13 characters."""
    if name in _BRIEF:
        return phrase(f"screen.class.{name}")
    return vocabulary.name("category" if name in CATEGORIES else "lifetime", name)


def _when(event: int, end: int, step: int, phase: int) -> str:
    known: list[str] = [phrase("places.step", step=str(step))] if step >= 0 else []
    known += [vocabulary.name("phase", PHASES[phase])] if phase > 0 else []
    if not known or not 0 <= event < end:
        return _event(event, end)
    return phrase("report.with-note", text=_event(event, end), note=joined(known, ", "))


def _event(event: int, end: int) -> str:
    if event < 0:
        return phrase("places.before")
    return phrase("places.event", at=event) if event < end else phrase("screen.not-freed")


def next_order(order: str) -> str:
    """Returns the next order."""
    return ORDERS[(ORDERS.index(order) + 1) % len(ORDERS)]
