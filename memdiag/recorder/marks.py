"""What happened when, beside the allocator's own events: phases, steps, modules entered and left, tensors seen.

Kept in plain columns (``array``), so that a mark costs well under a microsecond. A mark says when it was made in one or
two ways:

* ``time_ns``: nanoseconds since 1970, for allocators whose events have times;
* ``allocs`` and ``frees``: how many blocks had been handed out and given back on that device so far, for those whose events have
  none, and to be exact; -1 where it was not asked.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
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
PHASE, STEP, MARK, LOOK, OOM = range(5)  # the value of a look: whose tensors are looked at

Position = tuple[int, int, int]  # device, allocs, frees
NOWHERE: Position = (-1, -1, -1)
_MOST_MODULE_MARKS = 4_000_000  # 80 MB; the oldest half goes
_MOST_SEEN = 400_000  # 100 MB; of gradients and inputs the oldest half goes


class Marks:
    """All marks of a process.

    Args:
        position: Tells where the allocator stands (device, allocs, frees); called for phases and steps only, since it costs about
            20 microseconds.
    """

    def __init__(self, position: Callable[[], Position]) -> None:
        self._position = position
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._marks = {name: array("q") for name in ("time_ns", "kind", "value", "device", "allocs", "frees")}
        self._before = array("q")  # of each mark the one before it of the same kind and value
        self._latest: dict[tuple[int, ...], int] = {}
        self._modules = {name: array("q") for name in ("time_ns", "name", "device", "allocs", "frees")}
        self._seen = {name: array("q") for name in ("device", "addr", "category", "name", "first", "last")}
        self._rows: dict[tuple[int, int, int, int], int] = {}
        self._groups: dict[
            int, tuple[list[int], list[int], int]
        ] = {}  # addresses, rows, the last mark at which they were the same

    def name(self, text: str) -> int:
        """Returns the number of a name."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.names)
            self.names.append(text)
        return number

    def add(self, kind: int, value: int) -> int:
        """Adds a mark; returns its number."""
        device, allocs, frees = self._position()
        return self._append((time.time_ns(), kind, value, device, allocs, frees))

    def look(self, of: int, mark: int) -> int:
        """Adds a mark at the same moment as another: from here the tensors of a model or optimizer are seen; returns its number."""
        columns = self._marks
        _, _, _, *position = (column[mark] for column in columns.values())
        return self._append((columns["time_ns"][mark], LOOK, of, *position))

    def out_of_memory(self, device: int) -> None:
        """Adds a mark for an out-of-memory event of a device; the allocator is in the midst of it, and is not asked where it stands."""
        self._append((time.time_ns(), OOM, 0, device, -1, -1))

    def _append(self, values: tuple[int, ...]) -> int:
        for column, value in zip(self._marks.values(), values):
            column.append(value)
        number = len(self._before)
        self._before.append(self._latest.get(values[1:3], -1))
        self._latest[values[1:3]] = number
        return number

    def __len__(self) -> int:
        return len(self._marks["kind"])

    def module_appenders(self) -> tuple[Callable[[int], None], Callable[[int], None]]:
        """Returns what adds the time of a module mark and what adds its name (-1: of none): two calls, since a model has many modules."""
        return self._modules["time_ns"].append, self._modules["name"].append

    def place_module(self, position: Position) -> None:
        """Says where the allocator stood at the module mark just added."""
        self._pad(len(self._modules["name"]) - 1)
        for column, value in zip(("device", "allocs", "frees"), position):
            self._modules[column].append(value)

    def _pad(self, length: int) -> None:
        """Fills the places of module marks that have none."""
        for column in ("device", "allocs", "frees"):
            missing = length - len(self._modules[column])
            if missing > 0:
                self._modules[column].extend(array("q", [-1]) * missing)

    def _even_out(self) -> None:
        """Drops what a ctrl-C has left half written: what follows it would stand beside the wrong times."""
        times, names, *places = self._modules.values()
        for columns in ([*self._marks.values(), self._before], [times, names]):
            length = min(map(len, columns))
            for column in columns:
                del column[length:]
        for column in places:  # as a rule shorter: most have none
            del column[len(names) :]

    def trim(self) -> None:
        """Drops the oldest half of the module marks if there are too many; of what was seen of short-lived tensors as well."""
        self._even_out()
        length = len(self._modules["name"])
        if length > _MOST_MODULE_MARKS:
            self._pad(length)
            for column in self._modules.values():
                del column[: length // 2]
        seen = self._seen
        length = len(seen["addr"])
        if length > _MOST_SEEN:
            for group in self._groups:
                self._settle(group)
            self._groups.clear()  # rows get other numbers
            kept = [
                row for row in range(length) if row >= length // 2 or seen["category"][row] not in (GRADIENT, INPUT)
            ]
            for name, column in seen.items():
                seen[name] = array("q", [column[row] for row in kept])
            keys = zip(seen["device"], seen["addr"], seen["category"], seen["name"])
            self._rows = {key: row for row, key in enumerate(keys)}

    def see(self, device: int, addr: int, category: int, name: int, mark: int) -> int:
        """Says that at a mark the tensor at an address is of a category and has a name.

        The same at the next mark of the same kind and value lengthens what was said: from ``first`` to ``last``.

        Returns:
            The row of what was seen.
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
        """Says that the tensors of a group are where they were at the last mark of this kind: one comparison for all of them.

        Returns:
            False if they are not: each has to be seen, and ``remember`` called.
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
        """Keeps where the tensors of a group are, and their rows."""
        self._groups[group] = (addresses, rows, mark)

    def _settle(self, group: int) -> None:
        """Writes down until when a group was the same."""
        _, rows, mark = self._groups[group]
        last = self._seen["last"]
        for row in rows:
            last[row] = max(last[row], mark)

    def content(self) -> dict[str, Any]:
        """Returns everything as builtin containers; each column is text (see ``columns``)."""
        self._even_out()
        self._pad(len(self._modules["name"]))
        for group in self._groups:
            self._settle(group)
        return {
            "names": list(self.names),
            "marks": {name: pack(column) for name, column in self._marks.items()},
            "modules": {name: pack(column) for name, column in self._modules.items()},
            "tensors": {name: pack(column) for name, column in self._seen.items()},
        }
