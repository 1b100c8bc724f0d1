"""The tensors there at a moment as rows of a table, as many columns as there is room for."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from memdiag import vocabulary
from memdiag.analyzers.places import group_name
from memdiag.screen.lines import DIM, STRONG, Lines, cell, fitted, short
from memdiag.screen.walk import By, OneDevice
from memdiag.trace.schema import CATEGORIES, LIFETIMES, PHASES
from memdiag.units import format_bytes, format_count, format_us, plural
from memdiag.views.at_cursor import since_us
from memdiag.views.live_rows import ORDERS

_FIXED = {"bytes": 10, "requested": 10, "category": 12, "lifetime": 13, "age": 9}
_LEAST = 16  # columns of a name or a place
_BETWEEN = 1
_BRIEF = {"optimizer_state": "optim. state", "forward_to_backward": "fwd to bwd", "survives_step": "survives step"}
_ROOMY = 20  # columns more than needed from which on there is room for what matters least
_NO_STACK = "(no call stack)"
_WORDS = 20  # characters of what is looked for
_FRAMES = 60  # of a stack


@dataclass
class TensorLines(Lines):
    """The table. ``text`` chooses rows (see ``views.live_rows``), ``order`` is one of its ``ORDERS``."""

    here: OneDevice
    at: int
    text: str = ""
    order: str = "bytes"
    backwards: bool = False
    by: By = "category"

    def __post_init__(self) -> None:
        self.live = self.here.live.at(self.at, self.text, self.order, backwards=self.backwards)
        self.empty = "no tensor here is like that (Esc shows all)" if self.text else "no tensor is there at this moment"

    def __len__(self) -> int:
        return len(self.live.rows)

    def summary(self) -> str:
        """Returns how many there are, and their bytes."""
        if not self.text:
            return f"{plural(len(self), 'tensor')}, {format_bytes(self.live.bytes)}"
        chosen = f"{format_count(len(self))} of {format_count(self.live.num_all)} with “{short(self.text, _WORDS)}”"
        return f"{chosen} · {format_bytes(self.live.bytes)} of {format_bytes(self.live.bytes_of_all)}"

    def columns(self, width: int) -> dict[str, int]:
        """Returns the columns that fit, and how wide they are, from the left."""
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
        """Returns the titles; that of the column by which rows are ordered has an arrow."""
        line = Text(no_wrap=True, end="")
        for name, room in self.columns(width).items():
            title = name + (("▲" if self.backwards else "▼") if name == self.order else "")
            line.append_text(cell(title, room, STRONG, right=name in {"bytes", "requested", "age"})).append(" ")
        line.right_crop(1)
        return line

    def column_at(self, place: int, width: int) -> str | None:
        """Returns the column whose title stands at a place of the head; None: none."""
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
            return fitted(live.name(row) or live.place(row) or _NO_STACK, room)
        return fitted(live.place(row) or _NO_STACK, room, DIM)

    def _class(self, kind: By, name: str, room: int) -> Text:
        """A category or lifetime, in its colour where colours tell those apart."""
        return cell(brief(name), room, vocabulary.color(kind, name) if kind == self.by else DIM)

    def _age(self, row: int) -> str:
        device = self.here.device
        born = int(device.tensors.alloc_at[row])
        if born < 0 or self.at < 0:
            return "" if not device.num_events else "before"
        then, now = since_us(device, born), since_us(device, self.at)
        return format_us(now - then) if then is not None and now is not None else f"{format_count(self.at - born)} ev"

    def detail(self, number: int) -> Text:
        """Returns all that is known of a tensor."""
        row = int(self.live.rows[number])
        here, device = self.here, self.here.device
        tensors, live = device.tensors, here.live
        end = device.num_events
        pending = int(tensors.free_requested_at[row]) <= self.at
        facts = [
            ("name", short(live.name(row)) or "unknown"),
            ("bytes", f"{format_bytes(int(tensors.block_bytes[row]))} ({format_count(int(tensors.block_bytes[row]))})"),
            ("requested", f"{format_bytes(int(tensors.requested_bytes[row]))} ({format_count(int(tensors.requested_bytes[row]))})"),
            ("category", vocabulary.name("category", CATEGORIES[tensors.category[row]])),
            ("lifetime", vocabulary.name("lifetime", LIFETIMES[tensors.lifetime[row]])),
            ("made", _when(int(tensors.alloc_at[row]), end, int(tensors.step_alloc[row]), int(tensors.phase_alloc[row]))),
            ("freed", _when(int(tensors.free_requested_at[row]), end, int(tensors.step_free[row]), int(tensors.phase_free[row]))),
        ]
        if pending:
            facts.append(("pending", f"freed, but its block waits for a stream until {_event(int(tensors.free_completed_at[row]), end)}"))
        if device.has_addresses:
            facts += [("address", f"{int(tensors.addr[row]):#x}"), ("pool", group_name(device, int(tensors.group[row])))]
        text = Text()
        for label, value in facts:
            text.append(f"{label:<10}", DIM).append(value + "\n")
        return text.append("\n").append_text(stack_text(here, int(tensors.stack[row])))


def stack_text(here: OneDevice, stack: int) -> Text:
    """Returns a call stack, the innermost call first, the user's own lines set off."""
    frames = here.trace.stacks[stack]
    if not frames:
        return Text("Where it was made is not known: it has no call stack.", style=DIM)
    text = Text("made at, innermost call first\n", style="")
    for frame in frames[:_FRAMES]:
        text.append(f"  {short(str(frame), 1000)}\n", STRONG if frame.is_user else DIM)
    if len(frames) > _FRAMES:
        text.append(f"  and {format_count(len(frames) - _FRAMES)} more\n", DIM)
    return text


def brief(name: str) -> str:
    """Returns the name of a category or lifetime in at most 13 characters."""
    return _BRIEF.get(name, name.replace("_", " "))


def _when(event: int, end: int, step: int, phase: int) -> str:
    known = [f"step {step}"] if step >= 0 else []
    known += [PHASES[phase]] if phase > 0 else []
    return _event(event, end) + (f" ({', '.join(known)})" if known and 0 <= event < end else "")


def _event(event: int, end: int) -> str:
    if event < 0:
        return "before the trace began"
    return f"event {format_count(event)}" if event < end else "not within the trace"


def next_order(order: str) -> str:
    """Returns the order that comes after one."""
    return ORDERS[(ORDERS.index(order) + 1) % len(ORDERS)]
