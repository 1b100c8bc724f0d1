"""Traces for Perfetto (https://ui.perfetto.dev) and chrome://tracing.

It has curves as counters; tensors, phases and steps as slices.

The file is Chrome's trace event format, which both read. A device becomes a process. Lifetimes of tensors do not nest,
so they are asynchronous slices. Each category gets as many lanes as it needs, and within a lane tensors follow each
other. A lane is named after its category by a separate event before the first slice, so that viewers group all lanes of
a category. End events have names too: chrome://tracing drops those without. displayTimeUnit is omitted: older versions
of Perfetto read times in that unit.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from memdiag.errors import MemdiagError
from memdiag.exports.model import Wanted, nanoseconds, whole_file
from memdiag.text import phrase, plain
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array
from memdiag.version import __version__
from memdiag.views.plot_frame import settled
from memdiag.views.split import split_over_time
from memdiag.views.timeline import phase_spans, retries, step_starts

SUFFIXES = (".perfetto.json.gz", ".perfetto.json", ".trace.json", ".trace.json.gz")
CURVES = ("reserved", "active", "allocated", "requested")
SPLIT = "fragmentation"
_STEPS, _PHASES, _MARKS, _TENSORS = 1, 2, 3, 4  # threads
_CHUNK = 20_000  # events written at once
_LONGEST = 200


def write(trace: Trace, path: Path, wanted: Wanted) -> list[Path]:
    """Writes the trace; returns the file."""
    devices = [device for device in wanted.devices(trace) if device.num_events]
    if not devices:
        raise MemdiagError(
            phrase("errors.no-events", path=str(trace.path)),
            phrase("errors.no-events.hint"),
        )
    with whole_file(path) as file:
        other = {
            "exporter": f"memdiag {__version__}",
            "source": plain(trace.path, _LONGEST),
            "format": plain(trace.format, _LONGEST),
            "torch_version": plain(trace.torch_version or "unknown", _LONGEST),
            "time": {str(device.device): _clock(device) for device in devices},
        }
        file.write(b'{"otherData":' + json.dumps(other).encode() + b',"traceEvents":[\n')
        writer = _Writer(file)
        for device in devices:
            writer.add(_device(trace, device, wanted.min_bytes))
        file.write(b"\n]}\n")
    return [path]


def _clock(device: DeviceTrace) -> str:
    first = nanoseconds(device)[1]
    return "one microsecond per event, because the file has no times" if first is None else f"from {first} us on"


class _Writer:
    """Writes events in batches, separated by commas."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._is_first = True

    def add(self, texts: Iterator[str]) -> None:
        rows: list[str] = []
        for text in texts:
            rows.append(text)
            if len(rows) >= _CHUNK:
                self._flush(rows)
                rows = []
        self._flush(rows)

    def _flush(self, rows: list[str]) -> None:
        if rows:
            self._file.write(("" if self._is_first else ",\n").encode() + ",\n".join(rows).encode())
            self._is_first = False


def _stamp(nanos: int) -> str:
    """Returns nanoseconds as the format's microseconds, exactly."""
    return f"{nanos // 1000}.{nanos % 1000:03d}" if nanos % 1000 else str(nanos // 1000)


def _text(value: str) -> str:
    return json.dumps(plain(value, _LONGEST))


def _device(trace: Trace, device: DeviceTrace, min_bytes: int) -> Iterator[str]:
    """Yields the events of one device."""
    pid = device.device + 1  # 0 is the idle process
    backend = f" ({trace.backend})" if trace.backend else ""
    yield _meta(pid, 0, "process_name", f"device {device.device}{backend}")
    for tid, name in ((_STEPS, "steps"), (_PHASES, "phases"), (_MARKS, "retries and failures"), (_TENSORS, "tensors")):
        yield _meta(pid, tid, "thread_name", name)
    times, _ = nanoseconds(device)
    end = int(times[-1]) + 1
    yield from _spans(device, pid, np.append(times, end))
    yield from _marks(device, pid, times)
    yield from _counters(device, pid, times)
    yield from _tensors(trace, device, pid, np.append(times, end), min_bytes)


def _meta(pid: int, tid: int, what: str, name: str) -> str:
    return f'{{"ph":"M","pid":{pid},"tid":{tid},"name":"{what}","args":{{"name":{_text(name)}}}}}'


def _spans(device: DeviceTrace, pid: int, times: Array) -> Iterator[str]:
    """Yields steps and phases."""
    starts, phases = step_starts(device), phase_spans(device)
    ends = np.append(starts["event"][1:], device.num_events)
    steps = zip(
        starts["event"].tolist(), ends.tolist(), [f"step {step}" for step in starts["step"].tolist()], strict=False
    )
    named = zip(
        phases["start"].tolist(),
        phases["end"].tolist(),
        [schema.PHASES[phase] for phase in phases["phase"].tolist()],
        strict=True,
    )
    for tid, category, spans in ((_STEPS, "step", steps), (_PHASES, "phase", named)):
        for start, stop, name in spans:
            if name != "unknown":
                begin, long = int(times[start]), int(times[stop] - times[start])
                yield (
                    f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{_stamp(begin)},"dur":{_stamp(long)},"cat":"{category}",'
                    f'"name":"{name}","args":{{"first_event":{start},"events":{stop - start}}}}}'
                )


def _marks(device: DeviceTrace, pid: int, times: Array) -> Iterator[str]:
    ooms = np.flatnonzero(device.events.action == schema.OOM)
    for name, events in (("retry", retries(device)), ("out of memory", ooms)):
        for at in events.tolist():
            yield (
                f'{{"ph":"i","s":"p","pid":{pid},"tid":{_MARKS},"ts":{_stamp(int(times[at]))},"cat":"failure","name":'
                f'"{name}","args":{{"event":{at},"bytes":{int(device.events.size[at])}}}}}'
            )


def _counters(device: DeviceTrace, pid: int, times: Array) -> Iterator[str]:
    """Yields the curves, and the split of reserved - requested as one counter of several values, drawn stacked."""
    for name in CURVES:
        yield from _counter(name, {"bytes": device.usage[name]}, pid, times)
    yield from _counter(SPLIT, split_over_time(device.usage.take(settled(device))), pid, times)


def _counter(name: str, values: dict[str, Array], pid: int, times: Array) -> Iterator[str]:
    """Yields a counter at each change of its values, and at the end: chrome://tracing draws it to its last event."""
    known = {key: column for key, column in values.items() if (column >= 0).any()}
    if not known:
        return
    columns = np.stack(list(known.values()), axis=1)
    changes = np.append(True, (columns[1:] != columns[:-1]).any(axis=1))
    changes[-1] = True
    at = np.flatnonzero(changes)
    form = ",".join(f'"{key}":%d' for key in known)
    for low in range(0, len(at), _CHUNK):
        some = at[low : low + _CHUNK]
        for time, row in zip(times[some].tolist(), columns[some].tolist(), strict=True):
            yield f'{{"ph":"C","pid":{pid},"ts":{_stamp(time)},"name":"{name}","args":{{{form % tuple(row)}}}}}'


def _tensors(trace: Trace, device: DeviceTrace, pid: int, times: Array, min_bytes: int) -> Iterator[str]:
    """Yields tensors as slices, in the order of their begin and end events."""
    tensors, n = device.tensors, device.num_events
    rows = np.flatnonzero(tensors.block_bytes >= max(min_bytes, 0))
    born, gone = np.maximum(tensors.alloc_at[rows], 0), np.minimum(tensors.free_completed_at[rows], n)
    # An end precedes the begin at the same event; a tensor that ends before it begins has no length.
    order = np.lexsort(
        (np.tile(rows, 2), np.repeat((1, 0), len(rows)), np.concatenate((born, np.maximum(gone, born + 1))))
    )
    label = _labels(trace, device)
    lanes = {category: _Lanes(pid, category) for category in schema.CATEGORIES}
    where: dict[int, int] = {}
    for entry in order.tolist():
        row = int(rows[entry % len(rows)])
        lane = lanes[schema.CATEGORIES[tensors.category[row]]]
        if entry < len(rows):
            number, is_new = lane.take()
            where[row] = number
            if is_new:
                yield lane.named(number, 0)
            yield lane.begin(number, int(times[born[entry]]), label(row), _arguments(device, row))
        else:
            number = where.pop(row)
            lane.give_back(number)
            yield lane.end(number, int(times[min(int(gone[entry - len(rows)]), n)]), label(row))


class _Lanes:
    """Lanes of one category; the free lane with the lowest number is used first."""

    def __init__(self, pid: int, category: str) -> None:
        self._head = f'"pid":{pid},"tid":{_TENSORS},"cat":"{category}"'
        self._name, self._key = category.replace("_", " "), f"{pid}.{category}"
        self._free: list[int] = []
        self._count = 0

    def take(self) -> tuple[int, bool]:
        if self._free:
            return heapq.heappop(self._free), False
        self._count += 1
        return self._count, True

    def give_back(self, number: int) -> None:
        heapq.heappush(self._free, number)

    def named(self, number: int, time: int) -> str:
        return f'{{"ph":"n",{self._head},"id":"{self._key}.{number}","ts":{_stamp(time)},"name":"{self._name}"}}'

    def begin(self, number: int, time: int, name: str, arguments: str) -> str:
        return (
            f'{{"ph":"b",{self._head},"id":"{self._key}.{number}","ts":{_stamp(time)},"name":{name},"args":'
            f"{arguments}}}"
        )

    def end(self, number: int, time: int, name: str) -> str:
        return f'{{"ph":"e",{self._head},"id":"{self._key}.{number}","ts":{_stamp(time)},"name":{name}}}'


def _arguments(device: DeviceTrace, row: int) -> str:
    tensors = device.tensors
    address = f',"address":"{int(tensors.addr[row]):#x}"' if device.has_addresses else ""
    freed = int(tensors.free_requested_at[row])
    return (
        f'{{"tensor":{row},"bytes":{tensors.block_bytes[row]},"requested":{tensors.requested_bytes[row]},'
        f'"lifetime":"{schema.LIFETIMES[tensors.lifetime[row]]}","alloc_event":{tensors.alloc_at[row]}{address}'
        + (f',"free_event":{freed}}}' if freed < device.num_events else "}")
    )


def _labels(trace: Trace, device: DeviceTrace) -> Callable[[int], str]:
    """Returns a function that gives a tensor's label as JSON: its name, else its call site, else its category."""
    names = [_text(name) for name in trace.strings]
    sites: dict[int, str] = {}
    tensors = device.tensors

    def label(row: int) -> str:
        name, stack = int(tensors.name[row]), int(tensors.stack[row])
        if name >= 0:
            return names[name]
        if stack not in sites:
            sites[stack] = _text(trace.stacks.label(stack)) if stack >= 0 else ""
        return sites[stack] if len(sites[stack]) > 2 else f'"{schema.CATEGORIES[tensors.category[row]]}"'

    return label
