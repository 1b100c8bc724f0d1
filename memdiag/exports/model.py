"""Shared by all exports: the request, atomically written files, and time as other tools need it.

A format is a module with ``SUFFIXES`` (file suffixes, the default first) and ``write(trace, path, wanted) ->
list[Path]``.
"""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from memdiag import output_file
from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import DEFAULT
from memdiag.trace.table import Array

TABLES = ("tensors", "events", "stacks")


@dataclass(frozen=True)
class Wanted:
    """A request for an export.

    Attributes:
        device: Index of the only device to export, or None for all.
        tables: For csv and parquet: which of TABLES.
        min_bytes: For perfetto: smaller tensors are omitted.
        at: For speedscope: the moment of live memory, as in ``memdiag.trace.moments``.
    """

    device: int | None = None
    tables: tuple[str, ...] = TABLES
    min_bytes: int = 0
    at: str | int = DEFAULT

    def devices(self, trace: Trace) -> tuple[DeviceTrace, ...]:
        """Returns the devices to write.

        Raises:
            MemdiagError: The trace does not have the requested device.
        """
        found = tuple(device for device in trace.devices if self.device is None or device.device == self.device)
        if not found and self.device is not None:
            have = ", ".join(str(device.device) for device in trace.devices) or "none"
            raise MemdiagError(
                phrase("errors.no-device", device=str(self.device)), phrase("errors.devices", have=str(have))
            )
        return found


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for atomic writing, compressed if its name ends in ``.gz``.

    Raises:
        MemdiagError: The file cannot be written.
    """
    with output_file.whole_file(path) as raw:
        if path.suffix.lower() == ".gz":
            # Without name and time inside: the same trace gives the same bytes.
            with gzip.GzipFile(filename="", mode="wb", compresslevel=5, fileobj=raw, mtime=0) as packed:
                yield cast(BinaryIO, packed)
        else:
            yield raw


def nanoseconds(device: DeviceTrace) -> tuple[Array, int | None]:
    """Returns ascending event times (int64, ns since the first), and the time of the first (us; None if unknown).

    Clocks of recordings count microseconds, and several events may share one. They are set a nanosecond apart, to
    preserve their order. Without times, an event takes a microsecond.
    """
    n, clock = device.num_events, device.events.time_us
    if not n or (clock < 0).any():
        return np.arange(n, dtype=np.int64) * 1000, None
    clock = np.maximum.accumulate(clock)  # for times that go backwards, the order of the file wins
    first = np.flatnonzero(np.append(True, clock[1:] != clock[:-1]))
    rank = np.arange(n) - np.repeat(first, np.diff(np.append(first, n)))
    return (clock - clock[0]) * 1000 + np.minimum(rank, 999), int(clock[0])
