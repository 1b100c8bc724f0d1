"""Marks that complement the allocator's events: phases, steps, modules entered and left, tensors seen.

They are stored in plain columns (``array``), so a mark costs well under a microsecond. A mark stores its time in one or
both of two forms:

* ``time_ns``: nanoseconds since 1970, for allocators whose events have times;
* ``allocs`` and ``frees``: number of blocks allocated and freed on that device so far, for allocators whose events have
  no times, and for exactness; -1 if not queried.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .columns import pack

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


def num_allocs(backends: Iterable[Any]) -> int:
    """Returns how many blocks backends have allocated on their current devices."""
    return sum(backend.position()[1] for backend in backends)


class Marks:
    """All marks of a process.

    Args:
        position: Returns the allocator's position (device, allocs, frees); called only for phases and steps, since it
            takes about 20 microseconds.

    Attributes:
        lock: Held while rows are appended that several threads may append. Module marks need none: each thread has its
            own columns.
    """

    def __init__(self, position: Callable[[], Position]) -> None:
        self._position = position
        self.added: Callable[[int, Position], None] | None = None  # called after a mark was added
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self.lock = threading.RLock()
        columns = ("time_ns", "kind", "value", "device", "allocs", "frees", "thread")
        self._marks = {name: array("q") for name in columns}
        self._before = array("q")  # for each mark, the previous one of the same kind and value
        self._latest: dict[tuple[int, ...], int] = {}
        self._noted: dict[int, int] = {}  # by name: how many marks of the recorder itself
        self._modules = {0: _module_columns()}  # by thread
        self._seen = {name: array("q") for name in ("device", "addr", "category", "name", "first", "last")}
        self._rows: dict[tuple[int, int, int, int], int] = {}
        # addresses, rows, and the last mark at which they were the same
        self._groups: dict[int, tuple[list[int], list[int], int]] = {}
        self._calls: dict[str, dict[str, int]] = {}  # by function: lines that called it, and how often

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
            self.added(kind, position)
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
        columns = self._marks
        _, _, _, *rest = (column[mark] for column in columns.values())
        return self._append((columns["time_ns"][mark], LOOK, of, *rest))

    def here(self) -> int:
        """Adds a look at this moment that records no model or optimizer; returns its number."""
        return self._append((time.time_ns(), LOOK, -1, *self._position(), 0))

    def called(self, function: str, line: str) -> None:
        """Counts a call of a function of PyTorch at a line of the program."""
        lines = self._calls.setdefault(function, {})
        if line and (line in lines or len(lines) < _MOST_LINES):
            lines[line] = lines.get(line, 0) + 1

    def out_of_memory(self, device: int) -> None:
        """Adds a mark for an out-of-memory event of a device.

        The allocator is in the middle of the request, so its position is not queried.
        """
        self._append((time.time_ns(), OOM, 0, device, -1, -1, 0))

    def _append(self, values: tuple[int, ...]) -> int:
        with self.lock:
            for column, value in zip(self._marks.values(), values):
                column.append(value)
            number = len(self._before)
            self._before.append(self._latest.get(values[1:3], -1))
            self._latest[values[1:3]] = number
        return number

    def __len__(self) -> int:
        return len(self._marks["kind"])

    def module_appenders(self, thread: int = 0) -> tuple[Callable[[int], None], Callable[[int], None]]:
        """Returns the functions that append the time and the name (-1: none) of a module mark of a thread.

        They are separate bound methods for speed: a model has many modules.
        """
        columns = self._modules.setdefault(thread, _module_columns())
        return columns["time_ns"].append, columns["name"].append

    def place_module(self, position: Position, thread: int = 0) -> None:
        """Stores the allocator's position for the module mark that a thread has just added."""
        columns = self._modules[thread]
        _pad(columns, len(columns["name"]) - 1)
        for column, value in zip(("device", "allocs", "frees"), position):
            columns[column].append(value)

    def _even_out(self, columns: Sequence[array[int]]) -> None:
        """Drops a row that ctrl-C left incomplete: later values would be aligned with the wrong times."""
        length = min(map(len, columns))
        for column in columns:
            del column[length:]

    def trim(self, thread: int = 0) -> None:
        """Drops the oldest half of a thread's module marks if there are too many, and of short-lived tensors seen.

        Args:
            thread: The present thread: another one may append to its own columns at this moment.
        """
        with self.lock:
            self._even_out([*self._marks.values(), self._before])
            self._trim_seen()
        columns = self._modules.setdefault(thread, _module_columns())
        times, names, *places = columns.values()
        self._even_out((times, names))
        for column in places:  # usually shorter: most marks have none
            del column[len(names) :]
        length = len(names)
        if length > _MOST_MODULE_MARKS // len(self._modules):
            _pad(columns, length)
            for column in columns.values():
                del column[: length // 2]

    def _trim_seen(self) -> None:
        """Drops the oldest half of the gradients and inputs seen if there are too many."""
        seen = self._seen
        length = len(seen["addr"])
        if length > _MOST_SEEN:
            for group in self._groups:
                self._settle(group)
            self._groups.clear()  # rows are renumbered
            kept = [
                row for row in range(length) if row >= length // 2 or seen["category"][row] not in (GRADIENT, INPUT)
            ]
            for name, column in seen.items():
                seen[name] = array("q", [column[row] for row in kept])
            keys = zip(seen["device"], seen["addr"], seen["category"], seen["name"])
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
            last = self._seen["last"][row]
            if last == mark or last == self._before[mark]:
                self._seen["last"][row] = mark
                return row
        row = self._rows[key] = len(self._seen["addr"])
        for column, value in zip(self._seen.values(), (device, addr, category, name, mark, mark)):
            column.append(value)
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
        last = self._seen["last"]
        for row in rows:
            last[row] = max(last[row], mark)

    def content(self) -> dict[str, Any]:
        """Returns everything as builtin containers; each column is text (see ``columns``).

        A signal handler may call this while a row is appended, so it changes the length of no column.
        """
        for group in self._groups:
            self._settle(group)
        modules: dict[str, array[int]] = {name: array("q") for name in (*self._modules[0], "thread")}
        for thread, columns in list(self._modules.items()):
            length = min(len(columns["time_ns"]), len(columns["name"]))
            for name, column in columns.items():
                modules[name] += column[:length] + array("q", [-1]) * (length - len(column))
            modules["thread"] += array("q", [thread]) * length
        return {
            "names": list(self.names),
            "calls": {function: dict(lines) for function, lines in self._calls.items()},
            "marks": _packed(self._marks),
            "modules": _packed(modules),
            "tensors": _packed(self._seen),
        }


def _module_columns() -> dict[str, array[int]]:
    return {name: array("q") for name in ("time_ns", "name", "device", "allocs", "frees")}


def _pad(columns: dict[str, array[int]], length: int) -> None:
    """Fills the positions of module marks that have none."""
    for name in ("device", "allocs", "frees"):
        missing = length - len(columns[name])
        if missing > 0:
            columns[name].extend(array("q", [-1]) * missing)


def _packed(columns: dict[str, array[int]]) -> dict[str, str]:
    """Packs columns without a last row that is incomplete."""
    length = min(map(len, columns.values()))
    return {name: pack(column[:length] if len(column) > length else column) for name, column in columns.items()}
