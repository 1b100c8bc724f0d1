"""Csv files of the Ascend PyTorch profiler and of msprof: operator_memory, memory_record, npu_module_mem, npu_mem.

``operator_memory.csv`` and ``memory_record.csv`` contain complementary data: given one, the other in the same folder is
read too. Columns are found by name, since older releases lack Active and Stream. msprof's raw exports use KB and number
the devices.
"""

from __future__ import annotations

from pathlib import Path

from memdiag.errors import RefusedFile
from memdiag.sources.ascend_calls import NAME, read_calls
from memdiag.sources.ascend_context import context_of
from memdiag.sources.ascend_memory import AscendMemory
from memdiag.sources.csv_table import CsvTable, columns_in
from memdiag.sources.driver_memory import DriverMemory
from memdiag.sources.growing import BLANK, ByteLimit
from memdiag.sources.guard import guard
from memdiag.sources.notes import Notes
from memdiag.sources.partial import build_partial
from memdiag.sources.text_files import open_text
from memdiag.text import phrase
from memdiag.trace.build import RawTrace
from memdiag.trace.model import Trace

FORMAT = "ascend-csv"

_WHAT = "sources.ascend-csv"
RECORD = "sources.ascend-csv.hint"
_OTHER_HALF = (("operator_memory", "memory_record"), ("memory_record", "operator_memory"))
_CALLS = (("operator_memory.csv", NAME), ("memory_record.csv", NAME))
_OPERATORS = {"name", "size", "allocation time"}
_RECORDS = {"component", "timestamp", "total allocated", "total reserved"}
_MODULES = {"component", "timestamp", "total reserved"}
_PROCESS = {"event", "hbm", "timestamp"}
_WITHOUT_MEMORY = (
    ({"name", "input shapes", "host self duration"}, "operators"),
    ({"name", "accelerator core"}, "kernels"),
    ({"op type", "core type"}, "sums"),
    ({"device_id", "op type", "ratio(%)"}, "sums"),
    ({"api name", "time"}, "api"),
    ({"step", "computing"}, "steps"),
    ({"modulename", "curmemsize", "mempeaksize"}, "modules"),
    ({"op name", "model name", "graph id"}, "graph"),
)


def sniff(head: bytes) -> bool:
    """Returns whether the first line names the columns of a profiler table."""
    columns = columns_in(head)
    return any(names <= columns for names in (_OPERATORS, _MODULES, _PROCESS)) or _unfit(columns) is not None


def _unfit(columns: set[str]) -> str | None:
    return next((holds for names, holds in _WITHOUT_MEMORY if names <= columns), None)


def read(path: Path) -> Trace:
    """Reads a profiler table, and its complement if that is in the same folder.

    Raises:
        RefusedFile: The table is damaged, or contains no memory data.
    """
    notes = Notes()
    with guard(path, _WHAT, RECORD):
        budget = ByteLimit(path)
        memory, driver = AscendMemory(budget), DriverMemory(budget)
        kind = _read_table(path, memory, driver, budget, notes)
        other = _beside(path, *_OTHER_HALF) if kind == "memory" else None
        if other is not None:
            try:
                with guard(other, _WHAT, RECORD):
                    _read_table(other, memory, driver, budget, notes)
            except RefusedFile as error:
                notes.add("MD916", phrase("notes.whole-file", file=other.name, error=error.message))
        steps = None
        trace = _beside(path, *_CALLS) if kind == "memory" else None
        if trace is not None:
            try:
                steps = read_calls(trace, memory, budget)
            except RefusedFile as error:
                notes.add("MD911", phrase("notes.calls-file", file=trace.name, error=error.message))
        raws = driver.devices(notes) if kind == "driver" else memory.devices(notes)
        context = context_of(path)
        strings, spans = steps or ((), None)
        return build_partial(
            RawTrace(
                str(path),
                FORMAT,
                "npu",
                raws,
                stacks=memory.stacks.finish(),
                torch_version=context.version,
                settings=context.settings,
                strings=strings,
                annotations=spans,
            ),
            hint=phrase(RECORD),
            complete=False,
            notes=notes,
        )


def _beside(path: Path, *pairs: tuple[str, str]) -> Path | None:
    """Returns the file in the same folder whose name has the second text of a pair instead of the first."""
    for mine, other in pairs:
        head, found, tail = path.name.rpartition(mine)
        file = path.with_name(head + other + tail)
        if found and file.is_file():
            return file
    return None


def _read_table(path: Path, memory: AscendMemory, driver: DriverMemory, budget: ByteLimit, notes: Notes) -> str:
    with open_text(path) as text:
        table = CsvTable(text, budget)
        columns = set(table.columns)
        if columns >= _OPERATORS:
            _operators(table, memory)
        elif columns >= _RECORDS:
            _records(table, memory)
        elif columns >= _MODULES:
            _modules(table, driver)
        elif columns >= _PROCESS:
            _process(table, driver)
        else:
            holds = _unfit(columns)
            raise RefusedFile(
                phrase("errors.profiler-other", path=str(path), content=phrase(f"errors.profiler-content.{holds}"))
                if holds
                else phrase("errors.not-what", path=str(path), what=phrase(_WHAT)),
                phrase(RECORD),
            )
        table.check_times(path, notes)
    return "memory" if columns >= _OPERATORS or columns >= _RECORDS else "driver"


def _device(table: CsvTable, row: list[str]) -> int:
    """Returns the device of a row: ``NPU:1``, or a numeric column, or 0 if the file has neither."""
    for name in ("device type", "device", "device_id"):
        text = table.text(row, name).rpartition(":")[2]
        if text.isdecimal() and len(text) < 6:
            return int(text)
    return 0


def _stream(table: CsvTable, row: list[str]) -> int:
    text = table.text(row, "stream ptr")
    return int(text) if text.isdecimal() and len(text) < 19 else BLANK


def _known(value: int | None) -> int:
    """Returns the value of a cell.

    BLANK for an empty cell, and for a negative value (an allocator that saw only frees).
    """
    return BLANK if value is None or value < 0 else value


def _totals(table: CsvTable, row: list[str], prefix: str) -> list[int]:
    return [_known(table.bytes(row, f"{prefix}total {what}")) for what in ("allocated", "reserved", "active")]


def _operators(table: CsvTable, memory: AscendMemory) -> None:
    for row in table.rows():
        try:
            size = table.bytes(row, "size") or 0
            born = _known(table.nanoseconds(row, "allocation time"))
            dies = _known(table.nanoseconds(row, "release time"))
            gone = _known(table.nanoseconds(row, "active release time"))
            lasts = _known(table.nanoseconds(row, "duration"))
            if "release time" not in table.columns and BLANK not in (born, lasts):  # msprof does not record the end
                dies = born + lasts
            at_birth, at_death = _totals(table, row, "allocation "), _totals(table, row, "release ")
        except ValueError:
            memory.unusable += 1
            continue
        name, stream, device = table.text(row, "name"), _stream(table, row), _device(table, row)
        memory.add_operator(name, size, (born, dies, gone), at_birth, at_death, stream, device)


def _records(table: CsvTable, memory: AscendMemory) -> None:
    for row in table.rows():
        try:
            time, totals = table.nanoseconds(row, "timestamp"), _totals(table, row, "")
        except ValueError:
            time = None
        if time is None or time < 0:
            memory.unusable += 1
            continue
        memory.add_record(table.text(row, "component"), time, totals, _stream(table, row), _device(table, row))


def _modules(table: CsvTable, driver: DriverMemory) -> None:
    for row in table.rows():
        time, reserved = table.nanoseconds(row, "timestamp"), table.bytes(row, "total reserved")
        if time is not None and reserved is not None:
            driver.add(_device(table, row), table.text(row, "component"), time, reserved)


def _process(table: CsvTable, driver: DriverMemory) -> None:
    """Reads npu_mem: rows of the process (app) and of the whole device; only the process is used."""
    for row in table.rows():
        time, held = table.nanoseconds(row, "timestamp"), table.bytes(row, "hbm")
        if time is not None and held is not None and table.text(row, "event").lower() == "app":
            driver.add(_device(table, row), "APP", time, held)
