"""JAX's device memory profile (``jax.profiler.save_device_memory_profile``): live buffers at one moment, as pprof.

The profile is a gzip of a protocol buffer (profile.proto of pprof). Each sample is a call stack with the number and
bytes of the buffers of one size that were allocated there, their device, and their kind: buffer or executable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from memdiag.errors import RefusedFile
from memdiag.sources.enclosing import StackTable
from memdiag.sources.files import read_bytes
from memdiag.sources.growing import ByteLimit
from memdiag.sources.guard import guard
from memdiag.sources.notes import Notes
from memdiag.sources.partial import state_of
from memdiag.sources.protobuf_wire import fields, numbers, signed
from memdiag.text import phrase
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.model import Trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.stacks import Frame

FORMAT = "jax-profile"

_WHAT, _HINT = "sources.jax-profile", "sources.jax-profile.hint"
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING = 1, 2, 4, 5, 6
_MOST_BYTES = 1 << 50
_MOST_BUFFERS = 1_000_000  # in a profile; buffers beyond it share a row
_ROW = 64  # budget bytes of a buffer, of a location and of a function
# "cuda:0", "TPU_0(process=0,(0,0,0,1))" with coordinates, "StreamExecutorGpuDevice(id=0, process_index=1)"
_DEVICE = re.compile(r"(?:[^(]*\D)?(\d{1,4})\D*(?:\(.*)?|\D*\(\D*(\d{1,4})\b.*")
_BEGINNING = (_SAMPLE_TYPE, _SAMPLE_TYPE, _SAMPLE)  # fields


@dataclass(frozen=True, slots=True)
class LiveBuffers:
    """Live buffers of one size and call stack.

    Attributes:
        device: Name of the device.
        kind: "buffer", "executable", or "" if unknown.
        count, bytes: Number of buffers, and their bytes in all, which may be impossible: JAX writes such a size for
            some executables.
        frames: Call stack, innermost first.
    """

    device: str
    kind: str
    count: int
    bytes: int
    frames: tuple[Frame, ...]


@dataclass(slots=True)
class _Profile:
    """The parts of a profile that refer to each other by number."""

    sample_types: list[memoryview] = field(default_factory=list)
    samples: list[memoryview] = field(default_factory=list)
    locations: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    functions: dict[int, tuple[int, int]] = field(default_factory=dict)
    strings: list[memoryview] = field(default_factory=list)

    def text(self, number: int) -> str:
        """Returns a string of the profile; "" for a number without one."""
        return bytes(self.strings[number]).decode("utf-8", "replace") if 0 < number < len(self.strings) else ""


def sniff(head: bytes) -> bool:
    """Returns whether this looks like a profile: it begins with the two types of its values."""
    seen = 0
    try:
        for number, value in fields(memoryview(head)):
            if number != _BEGINNING[seen] or isinstance(value, int):
                return False
            if number == _SAMPLE_TYPE and [inner for inner, _ in fields(value)] != [1, 2]:
                return False
            seen += 1
            if seen == len(_BEGINNING):
                return True
    except ValueError:
        return False
    return False


def read(path: Path) -> Trace:
    """Reads a profile.

    Raises:
        RefusedFile: It is damaged, or contains no buffers.
    """
    notes = Notes()
    with guard(path, _WHAT, _HINT):
        budget = ByteLimit(path)
        parsed = list(_buffers(_parse(read_bytes(path), budget), budget))
        found = [each for each in parsed if 0 < each.bytes <= _MOST_BYTES]
        if not found:
            raise RefusedFile(phrase("errors.no-memory-events", path=str(path)), phrase(_HINT))
        stacks = StackTable(budget)
        names = list(dict.fromkeys(each.device for each in found))
        raws = [
            _raw(number, [each for each in found if each.device == name], stacks, budget)
            for name, number in _numbers(names).items()
        ]
        for name, number in _numbers(names).items():
            if not name:
                notes.add("MD919", phrase("notes.jax.no-device", device=str(number)))
            elif not name.endswith(str(number)):
                notes.add("MD919", phrase("notes.jax.device", device=str(number), name=name))
        unusable = sum(each.bytes < 0 or each.bytes > _MOST_BYTES for each in parsed)
        if unusable:
            notes.add("MD916", phrase("notes.rows", count=unusable))
        notes.add("MD910")
        notes.add("MD913")
        raw = RawTrace(str(path), FORMAT, None, raws, stacks=stacks.finish(), notes=notes.list())
        return build_trace(raw)


def _parse(data: bytes, budget: ByteLimit) -> _Profile:
    """Returns the parts of a profile."""
    profile = _Profile()
    for number, value in fields(memoryview(data)):
        if isinstance(value, int):
            continue
        budget.spend(_ROW)
        if number == _SAMPLE_TYPE:
            profile.sample_types.append(value)
        elif number == _SAMPLE:
            profile.samples.append(value)
        elif number == _STRING:
            profile.strings.append(value)
        elif number == _LOCATION:
            _add_location(profile, value, budget)
        elif number == _FUNCTION:
            parts = _ints(value)
            profile.functions[parts.get(1, 0)] = (parts.get(2, 0), parts.get(4, 0))
    return profile


def _add_location(profile: _Profile, data: memoryview, budget: ByteLimit) -> None:
    identity, lines = 0, []
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            identity = value
        elif number == 4 and isinstance(value, memoryview):
            budget.spend(_ROW)
            parts = _ints(value)
            lines.append((parts.get(1, 0), signed(parts.get(2, 0))))
    profile.locations[identity] = lines


def _ints(data: memoryview) -> dict[int, int]:
    """Returns the numbers of a message by field."""
    return {number: value for number, value in fields(data) if isinstance(value, int)}


def _buffers(profile: _Profile, budget: ByteLimit) -> Iterator[LiveBuffers]:
    """Yields the samples of a profile.

    Raises:
        ValueError: Its values are not numbers and bytes of buffers.
    """
    types = [profile.text(_ints(each).get(1, 0)) for each in profile.sample_types]
    if not {"space", "inuse_space"} & set(types):
        raise ValueError(f"a profile of {', '.join(types) or 'nothing'}, not of memory")
    of_bytes = next(place for place, name in enumerate(types) if name in {"space", "inuse_space"})
    of_count = next((place for place, name in enumerate(types) if name in {"allocations", "inuse_objects"}), -1)
    frames = _Frames(profile, budget)
    for sample in profile.samples:
        stack: list[int] = []
        values: list[int] = []
        labels: dict[str, str] = {}
        for number, value in fields(sample):
            if number == 1:
                stack += numbers(value)
            elif number == 2:
                values += numbers(value)
            elif number == 3 and isinstance(value, memoryview):
                parts = _ints(value)
                labels[profile.text(parts.get(1, 0))] = profile.text(parts.get(2, 0))
        budget.spend(_ROW + 8 * len(stack))
        size = signed(values[of_bytes]) if of_bytes < len(values) else -1
        count = signed(values[of_count]) if 0 <= of_count < len(values) else 1
        if count > 0:
            yield LiveBuffers(labels.get("device", ""), labels.get("kind", ""), count, size, frames.of(stack, labels))


class _Frames:
    """The frames of locations, made once for each."""

    def __init__(self, profile: _Profile, budget: ByteLimit) -> None:
        self._profile = profile
        self._budget = budget
        self._known: dict[int, tuple[Frame, ...]] = {}

    def of(self, stack: list[int], labels: dict[str, str]) -> tuple[Frame, ...]:
        """Returns the frames of a call stack; an executable is named as such."""
        kind = labels.get("kind", "")
        own = () if kind in {"", "buffer"} else (Frame("", 0, kind),)
        return (*own, *(frame for location in stack for frame in self._of_location(location)))

    def _of_location(self, location: int) -> tuple[Frame, ...]:
        known = self._known.get(location)
        if known is None:
            made = []
            for function, line in self._profile.locations.get(location, ()):
                name, file = self._profile.functions.get(function, (0, 0))
                text = self._profile.text(name)
                self._budget.spend(_ROW + len(text))
                made.append(Frame(self._profile.text(file), min(max(line, 0), 1 << 30), text))
            known = self._known[location] = tuple(made)
        return known


def _numbers(names: list[str]) -> dict[str, int]:
    """Returns a number for each device: the one in its name, or its place if two share one or a name has none.

    JAX names no device for compiled programs. They get the number after those of the named devices.
    """
    named = [name for name in names if name]
    own = [int(match[1] or match[2]) if (match := _DEVICE.fullmatch(name)) else -1 for name in named]
    if len(set(own)) != len(own) or min(own, default=0) < 0:
        own = list(range(len(named)))
    numbers = dict(zip(named, own, strict=True))
    return numbers if len(named) == len(names) else {**numbers, "": max(own, default=-1) + 1}


def _raw(number: int, found: list[LiveBuffers], stacks: StackTable, budget: ByteLimit) -> RawDevice:
    """Returns the live buffers of one device, each as a block of its final state."""
    sizes: list[int] = []
    rows: list[int] = []
    for each in found:
        # All buffers of a sample have one size. Without a remainder, each gets its own row.
        count = each.count if each.bytes % each.count == 0 and len(sizes) + each.count <= _MOST_BUFFERS else 1
        budget.spend(_ROW * count)
        sizes += [each.bytes // count] * count
        rows += [stacks.number(each.frames)] * count
    return state_of(number, np.array(sizes, np.int64), np.array(rows, np.int32))
