"""Marks that complement the allocator's events: phases, steps, modules entered and left, tensors seen.

They are stored in tables of numbers (``rows``), so a mark costs well under a microsecond. A mark stores its time in one
or both of two forms:

* ``time_ns``: nanoseconds since 1970, for allocators whose events have times;
* ``allocs`` and ``frees``: number of blocks allocated and freed on that device so far, for allocators whose events have
  no times, and for exactness; -1 if not queried.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from .columns import pack
from .rows import NumberRows

PHASES = ("unknown", "initialisation", "forward", "backward", "optimizer", "outside")
UNKNOWN, INITIALISATION, FORWARD, BACKWARD, OPTIMIZER, OUTSIDE = range(6)
CATEGORIES = (
    "unknown",
    "parameter",
    "gradient",
    "optimizer_state",
    "activation",
    "input",
    "temporary",
    "collective",
    "workspace",
    "kv_cache",
)
PARAMETER, GRADIENT, OPTIMIZER_STATE, ACTIVATION, INPUT = range(1, 6)
KINDS = ("phase", "step", "mark", "look", "oom")
PHASE, STEP, MARK, LOOK, OOM = range(5)  # value of a look: whose tensors are recorded, or -1

Position = tuple[int, int, int]  # device, allocs, frees
NOWHERE: Position = (-1, -1, -1)
_MOST_MODULE_MARKS = 4_000_000  # 80 MB; the oldest half is dropped
_MOST_NOTES = 100_000  # 6 MB
_MOST_LINES = 64  # that call one function
_MOST_SEEN = 400_000  # 100 MB; the oldest half of gradients and inputs is dropped
_LAST = 5  # column of the tensors seen


def num_allocs(backends: Iterable[Any]) -> int:
    """Returns how many blocks backends have allocated on their current devices."""
    return sum(backend.position()[1] for backend in backends)


class ModuleMarks:
    """The modules that one thread entered and left."""

    def __init__(self) -> None:
        self._rows = NumberRows("time_ns", "name")
        self._places = NumberRows("device", "allocs", "frees")  # usually fewer rows, since most marks have none
        self.append = self._rows.append  # time, and name of the present module (-1: none)

    def place(self, position: Position) -> None:
        """Stores the allocator's position for the mark just added."""
        self._places.pad(len(self._rows) - 1)
        self._places.append(position)

    def trim(self, most: int) -> None:
        """Drops the oldest half of the marks if there are more than ``most``."""
        length = len(self._rows)
        if length > most:
            self._places.pad(length)
            self._places.drop(length // 2)
            self._rows.drop(length // 2)

    def columns(self, thread: int) -> dict[str, array[int]]:
        """Returns a copy of each column, with the number of the thread."""
        columns = self._rows.columns()
        length = len(columns["name"])
        for name, column in self._places.columns().items():
            columns[name] = (column + array("q", [-1]) * (length - len(column)))[:length]
        return {**columns, "thread": array("q", [thread]) * length}


class Marks:
    """All marks of a process.

    Args:
        position: Returns the allocator's position (device, allocs, frees); called only for phases and steps, since it
            takes about 20 microseconds.

    Attributes:
        lock: Held while rows are appended that several threads may append. Module marks need none: each thread has its
            own.
    """

    def __init__(self, position: Callable[[], Position]) -> None:
        self._position = position
        self.added: Callable[[int, int, Position], None] | None = None  # called after a mark was added
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self.lock = threading.RLock()
        self._marks = NumberRows("time_ns", "kind", "value", "device", "allocs", "frees", "thread")
        self._before = array("q")  # for each mark, the previous one of the same kind and value
        self._latest: dict[tuple[int, ...], int] = {}
        self._noted: dict[int, int] = {}  # by name: how many marks of the recorder itself
        self._modules = {0: ModuleMarks()}  # by thread
        self._seen = NumberRows("device", "addr", "category", "name", "first", "last")
        self._rows: dict[tuple[int, int, int, int], int] = {}
        # addresses, rows, and the last mark at which they were the same
        self._groups: dict[int, tuple[list[int], list[int], int]] = {}
        self._calls: dict[str, dict[str, int]] = {}  # by function: lines that called it, and how often

    def name_of_one(self, text: str) -> int:
        """Returns a new number for a name, which other tensors may have, too."""
        self.names.append(text)
        return len(self.names) - 1

    def name(self, text: str) -> int:
        """Returns the number of a name."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.names)
            self.names.append(text)
        return number

    def add(self, kind: int, value: int, thread: int = 0) -> int:
        """Adds a mark of a thread; returns its number."""
        device, allocs, frees = position = self._position()
        number = self._append((time.time_ns(), kind, value, device, allocs, frees, thread))
        if self.added is not None:
            self.added(kind, value, position)
        return number

    def note(self, text: str) -> None:
        """Adds a mark of the recorder itself, which has a name but takes no sample; at most 100,000 of each name."""
        value = self.name(text)
        number = self._noted.get(value, 0)
        if number < _MOST_NOTES:
            self._noted[value] = number + 1
            self._append((time.time_ns(), MARK, value, *self._position(), 0))

    def look(self, of: int, mark: int) -> int:
        """Adds a mark at the time of another one, from which the tensors of a model or optimizer are seen.

        Returns its number.
        """
        time_ns, _, _, *rest = self._marks[mark]
        return self._append((time_ns, LOOK, of, *rest))

    def here(self) -> int:
        """Adds a look at this moment that records no model or optimizer; returns its number."""
        return self._append((time.time_ns(), LOOK, -1, *self._position(), 0))

    def called(self, function: str, line: str) -> None:
        """Counts a call of a function of PyTorch at a line of the program."""
        lines = self._calls.setdefault(function, {})
        if line and (line in lines or len(lines) < _MOST_LINES):
            lines[line] = lines.get(line, 0) + 1

    def out_of_memory(self, device: int) -> int:
        """Adds a mark for an out-of-memory event of a device; returns its number.

        The allocator is in the middle of the request, so its position is not queried.
        """
        return self._append((time.time_ns(), OOM, 0, device, -1, -1, 0))

    def _append(self, values: tuple[int, ...]) -> int:
        with self.lock:
            number = len(self._marks)
            self._before[number:] = array("q", (self._latest.get(values[1:3], -1),))  # ctrl-C may have left one
            self._marks.append(values)
            self._latest[values[1:3]] = number
        return number

    def __len__(self) -> int:
        return len(self._marks)

    def of_modules(self, thread: int = 0) -> ModuleMarks:
        """Returns the module marks of a thread."""
        return self._modules.setdefault(thread, ModuleMarks())

    def trim(self, thread: int = 0) -> None:
        """Drops the oldest half of a thread's module marks if there are too many, and of short-lived tensors seen.

        Args:
            thread: The present thread: another one may append to its own marks at this moment.
        """
        with self.lock:
            self._trim_seen()
        self.of_modules(thread).trim(_MOST_MODULE_MARKS // len(self._modules))

    def _trim_seen(self) -> None:
        """Drops the oldest half of the gradients and inputs seen if there are too many."""
        seen = self._seen
        length = len(seen)
        if length > _MOST_SEEN:
            for group in self._groups:
                self._settle(group)
            self._groups.clear()  # rows are renumbered
            categories = seen.columns()["category"]
            seen.retain(row for row in range(length) if row >= length // 2 or categories[row] not in (GRADIENT, INPUT))
            keys = zip(*(column for name, column in seen.columns().items() if name not in ("first", "last")))
            self._rows = {key: row for row, key in enumerate(keys)}

    def see(self, device: int, addr: int, category: int, name: int, mark: int) -> int:
        """Records that at a mark the tensor at an address has a category and a name.

        The same observation at the next mark of the same kind and value extends the row, from ``first`` to ``last``.

        Returns:
            The row of the observation.
        """
        key = (device, addr, category, name)
        row = self._rows.get(key)
        if row is not None:
            values, last = self._seen.values, row * self._seen.width + _LAST
            if values[last] == mark or values[last] == self._before[mark]:
                values[last] = mark
                return row
        row = self._rows[key] = len(self._seen)
        self._seen.append((*key, mark, mark))
        return row

    def see_again(self, group: int, addresses: list[int], mark: int) -> bool:
        """Records that the tensors of a group are unchanged since the last mark of this kind.

        One comparison is enough for all of them. Returns False if they changed: then each has to be passed to ``see``,
        and the group to ``remember``.
        """
        kept = self._groups.get(group)
        if kept is None:
            return False
        if kept[0] == addresses and kept[2] == self._before[mark]:
            self._groups[group] = (addresses, kept[1], mark)
            return True
        self._settle(group)
        return False

    def remember(self, group: int, addresses: list[int], rows: list[int], mark: int) -> None:
        """Remembers the addresses of a group's tensors, and their rows."""
        self._groups[group] = (addresses, rows, mark)

    def _settle(self, group: int) -> None:
        """Stores the last mark at which a group was unchanged."""
        _, rows, mark = self._groups[group]
        values, width = self._seen.values, self._seen.width
        for row in rows:
            last = row * width + _LAST
            values[last] = max(values[last], mark)

    def content(self) -> dict[str, Any]:
        """Returns everything as builtin containers; each column is text (see ``columns``).

        A signal handler may call this while a mark is added, so it changes the length of no table.
        """
        for group in self._groups:
            self._settle(group)
        modules: dict[str, array[int]] = {}
        for thread, marks in list(self._modules.items()):
            for name, column in marks.columns(thread).items():
                modules.setdefault(name, array("q")).extend(column)
        return {
            "names": list(self.names),
            "calls": {function: dict(lines) for function, lines in self._calls.items()},
            "marks": _packed(self._marks.columns()),
            "modules": _packed(modules),
            "tensors": _packed(self._seen.columns()),
        }


def _packed(columns: dict[str, array[int]]) -> dict[str, str]:
    return {name: pack(column) for name, column in columns.items()}
