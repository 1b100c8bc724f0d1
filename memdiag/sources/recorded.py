"""Reads the key ``memdiag`` that memdiag's recorder adds to a snapshot; a file from a stranger may contain anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memdiag.recorder.columns import Unpacker
from memdiag.results.finding import Note
from memdiag.sources.notes import of_format, on_device
from memdiag.sources.phantom_notes import phantom_notes
from memdiag.sources.run_facts import calls_in, ended_in, holders_in, process_in
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.raw import RawDevice
from memdiag.trace.recording import ProcessMarks
from memdiag.trace.table import Array
from memdiag.units import format_us

FORMAT = 1
_MARKS = ("time_ns", "kind", "value", "device", "allocs", "frees")
_MODULES = ("time_ns", "name", "device", "allocs", "frees")
_THREAD = "thread"  # a column of marks and modules; missing in files of earlier versions
_TENSORS = ("device", "addr", "category", "name", "first", "last")
_MOST_NAME = 300
_MOST_VARIABLES = 64
_MOST_CATEGORY = 8
_MOST_SECONDS = 1e9
_MOST_RANKS = 1 << 24
_MOST_THREADS = 1 << 16
_MOST_VALUE = 1 << 30  # keeps step numbers within 32 bits


def recorded_in(own: Mapping[str, Any]) -> ProcessMarks | None:
    """Returns the marks in memdiag's key of a file, or None if there are none, or only of another version.

    Raises:
        ValueError: They are damaged.
    """
    if own.get("format") != FORMAT or not isinstance(own.get("marks"), dict):
        return None
    names = own.get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("the names of its marks are damaged")
    tables = {"marks": _MARKS, "modules": _MODULES, "tensors": _TENSORS}
    marks, modules, tensors = _tables(own, tables).values()
    for table, columns in (("marks", marks), ("modules", modules)):
        columns[_THREAD] = _threads(own[table], len(columns["time_ns"]))
    for name in (modules["name"], tensors["name"]):
        if len(name) and (name.max() >= len(names) or name.min() < -1):
            raise ValueError("a mark refers to a name that is not there")
    category = tensors["category"]
    if len(category) and (category.max() > _MOST_CATEGORY or category.min() < 0):
        raise ValueError("a mark names an unknown category")
    if len(marks["value"]) and (marks["value"].max() > _MOST_VALUE or marks["value"].min() < -_MOST_VALUE):
        raise ValueError("a mark has an absurd value")
    short, counts = tuple(name[:_MOST_NAME] for name in names), _counts(own.get("counts"))
    return ProcessMarks(
        short,
        marks,
        modules,
        tensors,
        counts,
        *_rank(own.get("rank"), own.get("world")),
        ended_in(own),
        process_in(own),
        holders_in(own, len(marks["kind"])),
        calls_in(own),
    )


def environment_in(own: Mapping[str, Any]) -> dict[str, str]:
    """Returns the environment variables that the recorder stored, if the snapshot has no settings (torch_npu's)."""
    found = own.get("settings")
    if own.get("format") != FORMAT or not isinstance(found, dict):
        return {}
    return {
        name: value
        for name, value in list(found.items())[:_MOST_VARIABLES]
        if isinstance(name, str)
        and isinstance(value, str)
        and max(len(name), len(value)) <= _MOST_NAME
        and (name + value).isprintable()
    }


def notes_in(own: Mapping[str, Any], raws: Sequence[RawDevice]) -> list[Note]:
    """Returns the notes on limits of a recording: a full ring buffer, a window of steps, gaps, a simulated device."""
    if own.get("format") != FORMAT:
        return []
    notes = []
    most, counts = _whole(own.get("max_events")), _counts(own.get("counts"))
    for raw in raws:
        if 0 < most <= len(raw.action):
            kept = int(np.count_nonzero(raw.action == schema.ALLOC))
            total = counts.get(raw.device, (0, 0))[0]
            full = (
                phrase("notes.ring.left", most=most, kept=kept, total=total)
                if total > kept
                else phrase("notes.ring", most=most)
            )
            notes.append(Note("MD921", on_device(raw.device, full)))
    if window := _window(own.get("window")):
        notes.append(of_format("MD917", [window]))
    if own.get("taken_over") in ("stopped", "restarted"):
        notes.append(Note("MD922", phrase(f"notes.gap.{own['taken_over']}")))
    paused = own.get("paused_seconds")
    if isinstance(paused, int | float) and 0 < paused < _MOST_SECONDS:
        notes.append(Note("MD922", phrase("notes.gap.profiler", time=format_us(round(paused * 1e6)))))
    lost = own.get("lost_seconds")
    if isinstance(lost, int | float) and 0 < lost < _MOST_SECONDS:
        notes.append(Note("MD922", phrase("notes.gap.lost", time=format_us(round(lost * 1e6)))))
    if unknown := _whole(own.get("unknown_frees")):
        notes.append(Note("MD902", phrase("notes.frees.unknown", count=unknown)))
    if unseen := _whole(own.get("unseen_frees")):
        notes.append(Note("MD902", phrase("notes.frees.unseen", count=unseen)))
    if own.get("phantom") is True:
        notes += phantom_notes(own)
    if isinstance(own.get("simulated"), dict):
        notes.append(Note("MD924", phrase("notes.simulated")))
    return notes


def _window(given: Any) -> str:
    """Returns the requested steps as text, or "" for all steps or if unknown."""
    if not isinstance(given, list | tuple) or len(given) != 2:
        return ""
    first, last = _whole(given[0]), _whole(given[1])
    if last > first:
        return phrase("notes.window.steps", first=first, last=last - 1)
    return phrase("notes.window.later", step=first) if first and given[1] is None else ""


def _whole(value: Any) -> int:
    """Returns a whole number from a file, or 0 if it is missing or absurd."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 60 else 0


def _rank(rank: Any, world: Any) -> tuple[int | None, int | None]:
    """Returns rank and world size of a job, each None if invalid."""
    known = [value if type(value) is int and 0 <= value < _MOST_RANKS else None for value in (rank, world)]
    return known[0], known[1] or None


def _tables(own: Mapping[str, Any], tables: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Array]]:
    """Returns tables of columns (int64).

    Raises:
        ValueError: A table or a column of it is missing or damaged.
    """
    given: dict[str, Mapping[str, Any]] = {}
    for table in tables:
        if not isinstance(own.get(table), dict):
            raise ValueError(f"its table of {table} is missing")
        given[table] = own[table]
    unpacker = Unpacker(given[table].get(name) for table, names in tables.items() for name in names)
    found = {}
    for table, names in tables.items():
        columns = {}
        for name in names:
            try:
                columns[name] = np.frombuffer(unpacker.unpack(given[table].get(name)), "<i8").astype(np.int64)
            except ValueError as error:
                raise ValueError(f"column {name} of its {table} is damaged: {error}") from None
        if len({len(column) for column in columns.values()}) > 1:
            raise ValueError(f"the columns of its {table} are not of one length")
        found[table] = columns
    return found


def _threads(table: Mapping[str, Any], length: int) -> Array:
    """Returns the number of the thread of each row; 0: the main thread.

    Raises:
        ValueError: The column is damaged.
    """
    if _THREAD not in table:
        return np.zeros(length, np.int64)
    found = _tables({"rows": table}, {"rows": (_THREAD,)})["rows"][_THREAD]
    if len(found) != length or (length and (found.min() < 0 or found.max() > _MOST_THREADS)):
        raise ValueError("the threads of its marks are damaged")
    return found


def _counts(given: Any) -> dict[int, tuple[int, int]]:
    counts = {}
    for device, values in given.items() if isinstance(given, dict) else ():
        if isinstance(device, int) and isinstance(values, dict):
            allocs, frees = values.get("allocs"), values.get("frees")
            if isinstance(allocs, int) and isinstance(frees, int) and 0 <= allocs < 1 << 60 and 0 <= frees < 1 << 60:
                counts[device] = (allocs, frees)
    return counts
