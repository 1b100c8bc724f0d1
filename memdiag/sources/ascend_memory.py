"""Memory data of the Ascend PyTorch profiler, from csv files or from a database.

There are two tables. *operators* has one row per tensor allocated in the window, with its allocation, its free and the
totals at both. *records* has the totals at every call of an allocator. Components are PTA (torch_npu's caching
allocator), GE (the graph engine's), WORKSPACE, APP (the whole process according to the driver) and PTA+GE (a running
sum of the two, one additional row for each of theirs). A trace follows one allocator: PTA if there is one; notes report
the memory of the others.

A free has two times: requested (``release``), and completed once no stream needs the block (``active release``). If no
stream is pending, the profiler writes the second a few hundred nanoseconds before the first, with the same totals: this
becomes one event.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memdiag.sources.enclosing import StackTable, ThreadSpans
from memdiag.sources.growing import BLANK, ByteLimit, Columns, Names, take
from memdiag.sources.notes import Notes, on_device
from memdiag.sources.partial import unknown
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.raw import RawDevice
from memdiag.trace.stacks import Frame
from memdiag.trace.table import Array
from memdiag.units import format_bytes

_PREFERRED = ("PTA", "GE", "WORKSPACE", "APP")
_SUM = "PTA+GE"
_TOTALS = ("allocated", "reserved", "active")


class AscendMemory:
    """Collects both tables and builds devices from them.

    Attributes:
        stacks: Operator names, with the lines that called them if calls were added.
        unusable: Number of rows that could not be read.
    """

    def __init__(self, budget: ByteLimit) -> None:
        self.stacks = StackTable(budget)
        self.unusable = 0
        self._names = Names(budget)
        self._calls = ThreadSpans(self.stacks, budget)
        self._components = Names(budget)
        self._operators = Columns(
            (
                "component",
                "name",
                "size",
                "born",
                "dies",
                "gone",
                "born_allocated",
                "born_reserved",
                "born_active",
                "dies_allocated",
                "dies_reserved",
                "dies_active",
                "stream",
                "device",
            ),
            budget,
        )
        self._records = Columns(("component", "time", *_TOTALS, "stream", "device"), budget)

    def add_operator(
        self,
        name: str,
        size: int,
        times: tuple[int, int, int],
        at_birth: Sequence[int],
        at_death: Sequence[int],
        stream: int,
        device: int,
    ) -> None:
        """Adds a tensor.

        Args:
            name: The operator that requested it.
            size: Bytes of its block; negative if it was freed in the window but allocated before it.
            times: Nanoseconds of its allocation, its free request, and the completion of the free; BLANK if outside the
                window.
            at_birth, at_death: Allocated, reserved and active bytes at allocation and at free; BLANK if unknown.
            stream: Stream handle, or BLANK if unknown.
            device: Device index.
        """
        born, dies, gone = times
        dies = gone if dies == BLANK else dies
        if (born == BLANK and dies == BLANK) or not size:
            self.unusable += 1
            return
        if name.startswith("cann::"):
            component = "GE"
        elif BLANK < at_birth[0] < size or (dies != BLANK and gone == BLANK and at_death[2] != BLANK):
            # The workspace allocator updates its totals before it allocates, and its frees have one time instead of
            # two.
            component = "WORKSPACE"
        else:
            component = "PTA"
        if gone != BLANK:
            dies = min(dies, gone)
        self._operators.add(
            self._components.number(component),
            self._names.number(name),
            abs(size),
            born,
            dies,
            gone,
            *at_birth,
            *at_death,
            stream,
            device,
        )

    def knows(self, name: str) -> bool:
        """Returns whether any tensor was allocated for this operator."""
        return self._names.find(name) != BLANK

    def add_call(self, name: str, start: int, end: int, lines: str) -> None:
        """Adds a call of an operator (nanoseconds).

        Args:
            lines: The Python lines around it, innermost first, separated by ``;``.
        """
        self._calls.add(self._names.number(name), start, end, name, lines)

    def add_record(self, component: str, time: int, totals: Sequence[int], stream: int, device: int) -> None:
        """Adds an allocator's totals (allocated, reserved and active bytes) at a time (nanoseconds)."""
        self._records.add(self._components.number(component), time, *totals, stream, device)

    def devices(self, notes: Notes) -> list[RawDevice]:
        """Returns the columns of each device, and adds notes on omitted data."""
        operators, records = self._operators.arrays(), self._records.arrays()
        operators["stack"] = self._stacks(operators)
        numbers = np.unique(np.concatenate((operators["device"], records["device"])))
        raws = []
        for number in numbers.tolist():
            mine = take(operators, operators["device"] == number), take(records, records["device"] == number)
            raws.append(self._device(number, *mine, notes, is_one_of_several=len(numbers) > 1))
        notes.add("MD910")
        notes.add("MD914")
        notes.add("MD917", phrase("notes.window.tensors") if len(operators["size"]) else "")
        if not self.stacks.has_lines():
            notes.add("MD911", phrase("notes.operators") if len(self.stacks) else "")
        if not len(operators["size"]):
            notes.add("MD915", phrase("notes.totals"))
        notes.add("MD913", phrase("notes.sum"))
        if self.unusable:
            notes.add("MD916", phrase("notes.rows", count=self.unusable))
        return raws

    def _stacks(self, operators: dict[str, Array]) -> Array:
        """Returns the stack of each tensor: that of the call in which it was allocated, else the operator's name."""
        named = [self.stacks.number((Frame("", 0, name),)) if name else BLANK for name in self._names.list()]
        called = self._calls.stacks_at(operators["name"], operators["born"])
        alone = np.array(named, np.int64)[operators["name"]] if named else called
        return np.where(called >= 0, called, alone)

    def _device(
        self,
        number: int,
        operators: dict[str, Array],
        records: dict[str, Array],
        notes: Notes,
        *,
        is_one_of_several: bool,
    ) -> RawDevice:
        operators["component"] = self._component_by_time(operators, records)
        names = self._components.list()
        present = {
            names[code] for code in np.unique(np.concatenate((operators["component"], records["component"]))).tolist()
        }
        main = next((name for name in _PREFERRED if name in present), min(present - {_SUM} or present))
        for name in sorted(present - {main, _SUM}):
            rows = records["component"] == self._components.find(name)
            held = int(records["reserved"][rows].max(initial=-1))
            made = int((operators["component"] == self._components.find(name)).sum())
            bytes_or_count = phrase("notes.held", bytes=format_bytes(held), who=_who(name))
            detail = bytes_or_count if held >= 0 else phrase("notes.tensors", count=made, who=_who(name))
            notes.add("MD918", on_device(number, detail) if is_one_of_several else detail)
        if main != "PTA":
            detail = phrase("notes.not-pytorch", who=_who(main))
            notes.add("MD918", on_device(number, detail) if is_one_of_several else detail)
        code = self._components.find(main)
        events = _events(take(operators, operators["component"] == code), take(records, records["component"] == code))
        curves = {name: events[name] for name in _TOTALS}
        return RawDevice(
            device=number,
            action=events["action"].astype(np.int8),
            addr=events["addr"],
            size=events["size"],
            stream=events["stream"],
            time_us=np.where(events["time"] >= 0, events["time"] // 1000, -1),
            stack=events["stack"].astype(np.int32),
            has_addresses=False,
            curves={**curves, "requested": unknown(len(events["time"]))},
        )

    def _component_by_time(self, operators: dict[str, Array], records: dict[str, Array]) -> Array:
        """Returns the allocator of the operators' tensors.

        It is the one that recorded its totals at the same time, else a guess.
        """
        component = operators["component"].copy()
        own = records["component"] != self._components.find(_SUM)
        time, owner = records["time"][own], records["component"][own]
        order = np.argsort(time, kind="stable")
        time, owner = time[order], owner[order]
        for moment in ("dies", "born"):
            at = np.minimum(np.searchsorted(time, operators[moment]), max(len(time) - 1, 0))
            if len(time):
                found = time[at] == operators[moment]
                component[found] = owner[at[found]]
        return component


def _events(operators: dict[str, Array], records: dict[str, Array]) -> dict[str, Array]:
    """Merges tensors and totals into events in order of time."""
    born = np.flatnonzero(operators["born"] != BLANK)
    dies = np.flatnonzero(operators["dies"] != BLANK)
    # A free that is completed later than it was requested is two events; any other free is one.
    waits = dies[operators["gone"][dies] > operators["dies"][dies]]
    waiting = np.isin(dies, waits)
    count = len(records["time"])
    parts: list[dict[str, Array]] = [
        _part(operators, born, "born", schema.ALLOC, "born"),
        _part(operators, dies[~waiting], "dies", schema.FREE_COMPLETED, "dies"),
        _part(operators, waits, "dies", schema.FREE_REQUESTED, "dies"),
        _part(operators, waits, "gone", schema.FREE_COMPLETED, ""),
        {
            "time": records["time"],
            "action": np.full(count, schema.UNKNOWN),
            "addr": unknown(count),
            "size": np.zeros(count, np.int64),
            "stream": records["stream"],
            "stack": unknown(count),
            **{name: records[name] for name in _TOTALS},
        },
    ]
    events = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    # frees before allocations, totals after both; a free at the (rounded) time of its own allocation follows that
    rank = np.repeat([1, 0, 0, 0, 3], [len(part["time"]) for part in parts])
    freed = rank == 0
    rank[freed] = np.where(operators["born"][events["addr"][freed]] == events["time"][freed], 2, 0)
    events = take(events, np.lexsort((rank, events["time"])))
    return take(events, _merge(events, any_tensors=len(born) + len(dies) > 0))


def _part(operators: dict[str, Array], rows: Array, moment: str, action: int, totals: str) -> dict[str, Array]:
    curves = {name: operators[f"{totals}_{name}"][rows] if totals else unknown(len(rows)) for name in _TOTALS}
    return {
        "time": operators[moment][rows],
        "action": np.full(len(rows), action),
        "addr": rows,
        "size": operators["size"][rows],
        "stream": operators["stream"][rows],
        "stack": operators["stack"][rows] if action == schema.ALLOC else unknown(len(rows)),
        **curves,
    }


def _merge(events: dict[str, Array], *, any_tensors: bool) -> Array:
    """Moves totals recorded at the time of an event to that event; returns which events remain.

    Totals that add no information are dropped, unless there is nothing else.
    """
    sample = events["action"] == schema.UNKNOWN
    time = events["time"]
    # The totals at row i belong to the last event of the same time before it.
    twin = np.flatnonzero(sample[1:] & ~sample[:-1] & (time[1:] == time[:-1])) + 1
    keep = np.ones(len(time), bool)
    keep[twin] = False
    for name in _TOTALS:
        values = events[name]
        values[twin - 1] = np.where(values[twin - 1] == BLANK, values[twin], values[twin - 1])
    if any_tensors:
        left = np.flatnonzero(keep)
        same = np.ones(max(len(left) - 1, 0), bool)
        for name in _TOTALS:
            same &= events[name][left[1:]] == events[name][left[:-1]]
        keep[left[1:][same & sample[left[1:]]]] = False
    return keep


def _who(component: str) -> str:
    """Returns the name of a component in a note."""
    return phrase("notes.process") if component == "APP" else component
