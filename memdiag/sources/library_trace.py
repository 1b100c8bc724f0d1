"""Builds a trace from the log of a communication library: one device for each process and device of the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from memdiag.errors import RefusedFile
from memdiag.results.libraries import LibraryMemory
from memdiag.sources.enclosing import StackTable
from memdiag.sources.growing import ByteLimit
from memdiag.sources.guard import guard
from memdiag.sources.library_log import LibraryLog, ProcessLog
from memdiag.sources.notes import Notes, on_device
from memdiag.sources.partial import build_partial
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.build import RawTrace
from memdiag.trace.model import Trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.stacks import Frame

_COLLECTIVE = schema.CATEGORIES.index("collective")


def build(path: Path, format: str, log: LibraryLog, hint: str) -> Trace:
    """Builds the trace of a log.

    Args:
        path: The log.
        format: Name of its format.
        log: Its content.
        hint: What to do if it contains no allocations.

    Raises:
        RefusedFile: It contains no allocations.
    """
    notes = Notes()
    processes = log.with_memory()
    numbers = _numbers(processes)
    stacks = StackTable(ByteLimit(path))
    places = list(log.places)
    raws = [_raw(number, process, places, stacks) for number, process in zip(numbers, processes, strict=True)]
    for number, process in zip(numbers, processes, strict=True):
        if number != process.device:
            where = phrase("notes.library.process", host=process.host, pid=str(process.pid), device=process.device)
            notes.add("MD919", on_device(number, where))
    notes.add("MD910")
    notes.add("MD913", phrase("notes.library.outside"))
    notes.add("MD917")
    if not any(process.has_frees for process in processes):
        notes.add("MD912", phrase("notes.library.frees"))
    raw = RawTrace(str(path), format, None, raws, stacks=stacks.finish())
    trace = build_partial(raw, hint=hint, complete=None, notes=notes)
    memories = log.memories(str(path))
    return replace(
        trace, libraries=tuple(replace(memory, device=number) for number, memory in zip(numbers, memories, strict=True))
    )


def _numbers(processes: Sequence[ProcessLog]) -> list[int]:
    """Returns a device number for each process: that of the log if no two processes share one."""
    own = [process.device for process in processes]
    return own if len(set(own)) == len(own) else list(range(len(own)))


def _raw(number: int, process: ProcessLog, places: list[tuple[str, int, str]], stacks: StackTable) -> RawDevice:
    """Returns the events of one process about device memory."""
    events, times = np.array(process.events, np.int64), np.array(process.times, np.int64)
    buffer = np.where(events >= 0, events, -1 - events)
    on_device_only = np.array(process.on_host, np.int8)[buffer] == 0 if len(buffer) else np.zeros(0, bool)
    events, times, buffer = events[on_device_only], times[on_device_only], buffer[on_device_only]
    owner, place = np.array(process.owner, np.int64)[buffer], np.array(process.place, np.int64)[buffer]
    stack = np.empty(len(buffer), np.int32)
    known: dict[tuple[int, int], int] = {}
    for row, pair in enumerate(zip(owner.tolist(), place.tolist(), strict=True)):
        if pair not in known:
            known[pair] = stacks.number((_frame(process, pair[0], places[pair[1]]),))
        stack[row] = known[pair]
    has_times = bool(len(times)) and bool((times >= 0).all())
    return RawDevice(
        device=number,
        action=np.where(events >= 0, schema.ALLOC, schema.FREE_COMPLETED).astype(np.int8),
        addr=buffer,
        size=np.array(process.size, np.int64)[buffer],
        time_us=times if has_times else None,
        stack=stack,
        has_addresses=False,
        category=np.full(len(buffer), _COLLECTIVE, np.int8),
    )


def _frame(process: ProcessLog, owner: int, place: tuple[str, int, str]) -> Frame:
    """Returns the frame that names a buffer: its communicator and its place in the library."""
    file, line, name = place
    where = f"{file}:{line} {name}" if file else name
    if owner < 0:
        return Frame("", 0, where)
    comm = process.comms[owner]
    rank = f", rank {comm.rank} of {comm.num_ranks}" if comm.num_ranks is not None else ""
    return Frame("", 0, f"{comm.name or comm.identity}{rank}: {where}")


def memories_of(path: Path, parse: Callable[[Path], LibraryLog], what: str, hint: str) -> list[LibraryMemory]:
    """Returns the memory of a library for each process and device of its log.

    Args:
        path: The log.
        parse: Reads a log of this library.
        what: Key of the phrase that names the format.
        hint: Key of the hint of an error.

    Raises:
        RefusedFile: It is damaged, or contains no allocations of device memory.
    """
    with guard(path, what, hint):
        found = list(parse(path).memories(str(path)))
    if not found:
        raise RefusedFile(phrase("errors.no-library-memory", path=str(path)), phrase(hint))
    return found
