"""Reads the samples of a recording: memory of the card, of processes and of the host at marks and on a timer.

A sample is a dict with a time, an occasion, a step and a section for each source (``memdiag.recorder.sampling``).
Each section has a function that reads it. A file from a stranger may hold anything, so invalid samples are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from memdiag.trace import schema
from memdiag.trace.table import Table

_MOST_SAMPLES = 1 << 14
_MOST_DEVICES = 256
_MOST_PROCESSES = 4096
_MOST_BYTES = 1 << 50
_MOST_STEPS = 1 << 31
_MOST_US = 1 << 60


# Keys of the section of host memory, by column.
_HOST_KEYS = {
    name: f"{name}_bytes" if column.unit == "bytes" else name
    for name, column in schema.HOST_SAMPLES.items()
    if name not in {"time_us", "when", "step"}
}
HOST_KEYS = frozenset(_HOST_KEYS.values())


class RawSample(NamedTuple):
    """One sample with a valid time, occasion and step.

    Attributes:
        number: Its index in the file, among the valid ones.
        t_us: Microseconds since 1970.
        when: Index into ``schema.OCCASIONS``.
        step: Completed training steps.
        sections: All keys of the sample; their content is not checked.
    """

    number: int
    t_us: int
    when: int
    step: int
    sections: Mapping[str, Any]


def samples_of(own: Mapping[str, Any]) -> list[RawSample]:
    """Returns the samples in the recorder's data, in order of time."""
    given = own.get("samples")
    found: list[RawSample] = []
    for row in given[:_MOST_SAMPLES] if isinstance(given, list) else []:
        if not isinstance(row, dict) or row.get("when") not in schema.OCCASIONS:
            continue
        t_us, step = count(row.get("t_us"), _MOST_US), count(row.get("step"), _MOST_STEPS)
        if t_us is None or step is None or (found and t_us < found[-1].t_us):
            continue
        found.append(RawSample(len(found), t_us, schema.OCCASIONS.index(row["when"]), step, row))
    return found


def card_samples_in(own: Mapping[str, Any], device: int) -> Table:
    """Returns the samples of a device (``schema.SAMPLES``)."""
    rows: list[tuple[int, ...]] = []
    for sample in samples_of(own):
        row = next((row for row in rows_in(sample.sections.get("card")) if row.get("device") == device), {})
        total, free, reserved = (count(row.get(f"{name}_bytes"), _MOST_BYTES) for name in ("total", "free", "reserved"))
        if total is None or free is None or reserved is None or not 0 < total >= free:
            continue
        allocs, frees = (count(row.get(name), _MOST_BYTES) for name in ("allocs", "frees"))
        counts = (-1, -1) if allocs is None or frees is None else (allocs, frees)
        processes = _processes(sample.sections.get("processes"), device)
        own_bytes, other_bytes = _shares(processes, own.get("pid"), total - free)
        rows.append((sample.t_us, sample.when, sample.step, total, free, reserved, own_bytes, other_bytes, *counts, -1))
    columns = np.array(rows, np.int64).reshape(len(rows), len(schema.SAMPLES)).T
    return Table(schema.SAMPLES, dict(zip(schema.SAMPLES, columns, strict=True)))


def host_samples_in(own: Mapping[str, Any]) -> Table:
    """Returns the samples of host memory (``schema.HOST_SAMPLES``)."""
    rows: list[tuple[int, ...]] = []
    for sample in samples_of(own):
        section = sample.sections.get("host")
        if not isinstance(section, dict):
            continue
        known = {name: count(section.get(key), _MOST_BYTES) for name, key in _HOST_KEYS.items()}
        sizes = (-1 if size is None else size for size in known.values())
        rows.append((sample.t_us, sample.when, sample.step, *sizes))
    columns = np.array(rows, np.int64).reshape(len(rows), len(schema.HOST_SAMPLES)).T
    return Table(schema.HOST_SAMPLES, dict(zip(schema.HOST_SAMPLES, columns, strict=True)))


def _processes(section: Any, device: int) -> dict[int, int]:
    """Returns the bytes of each process on a device, by process id; empty if unknown."""
    for row in rows_in(section):
        found = row.get("bytes")
        if row.get("device") == device and isinstance(found, dict) and len(found) <= _MOST_PROCESSES:
            return {
                pid: size
                for pid, size in found.items()
                if count(pid, _MOST_STEPS) is not None and count(size, _MOST_BYTES) is not None
            }
    return {}


def _shares(processes: Mapping[int, int], pid: Any, used: int) -> tuple[int, int]:
    """Returns the bytes of this process and of the others; -1 and -1 unless both are known and possible."""
    mine = processes.get(pid)
    if mine is None:
        return -1, -1
    others = sum(processes.values()) - mine
    return (mine, others) if mine + others <= used else (-1, -1)


def rows_in(section: Any) -> Iterator[Mapping[str, Any]]:
    """Yields the rows of a section of a sample, one for each device."""
    if isinstance(section, list):
        yield from (row for row in section[:_MOST_DEVICES] if isinstance(row, dict))


def count(value: Any, most: int) -> int | None:
    """Returns a whole number from 0 to ``most``, or None if it is anything else."""
    return value if type(value) is int and 0 <= value <= most else None
