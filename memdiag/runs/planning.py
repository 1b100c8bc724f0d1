"""Offline placement of the tensors of a trace or a list of lifetimes.

It is the result of an allocator that knows the future.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memdiag.errors import MemdiagError
from memdiag.results.plan import PlanReport
from memdiag.text import phrase
from memdiag.trace.table import Array

if TYPE_CHECKING:
    from memdiag.allocator.placement.model import Plan
    from memdiag.trace.model import DeviceTrace, Trace

OF_ALLOCATORS = 512  # bytes: rounding of PyTorch's allocators


def _silent(_: str) -> None:
    """Drops a line."""


@dataclass(frozen=True)
class BuffersToPlace:
    """Buffers to place.

    Attributes:
        source: The file.
        ids: Names.
        shown_lower, shown_upper: Times as written in the file.
        lower, upper: Lifetimes, half open (int64).
        size: Bytes (int64).
        form: Format of the file, a key of ``memdiag.registry.SOURCES``.
        ends: Ends of a lifetime that count as live: "half-open", "open" or "closed".
        align: Default alignment of offsets in bytes.
        device: Device of a trace, or None for a list of lifetimes.
        before, after: Tensors from before the trace, and live at its end.
        recorded: Recorded peak of reserved bytes, or None if unknown.
        outside: Bytes outside the allocator, or None if unknown.
    """

    source: str

    ids: tuple[str, ...]
    shown_lower: Array
    shown_upper: Array
    lower: Array
    upper: Array
    size: Array
    form: str
    ends: str
    align: int
    device: int | None = None
    before: int = 0
    after: int = 0
    recorded: int | None = None
    outside: int | None = None


def read_buffers(
    path: Path,
    ends: str | None = None,
    device: int | None = None,
    *,
    read: Callable[[Path], Trace] | None = None,
    say: Callable[[str], None] = _silent,
) -> BuffersToPlace:
    """Reads buffers from a list of lifetimes (CSV) or from a trace.

    Args:
        path: The file.
        ends: Ends of a lifetime in a CSV file that count as live: "half-open", "open" or "closed"; None to infer it
            from the columns.
        device: Device of a trace, or None for the one with the most bytes.
        read: Reads a trace; None for ``memdiag.load``.
        say: Receives one line if a device was chosen among several.

    Raises:
        MemdiagError: The file cannot be read, has no such device or no tensors, or an argument does not apply to it.
    """
    from memdiag.sources import lifespans_csv
    from memdiag.sources.files import read_head

    if not lifespans_csv.sniff(read_head(path)):
        if ends is not None:
            raise MemdiagError(
                phrase("errors.plan-ends"),
                phrase("errors.plan-ends.hint"),
            )
        return _from_trace(path, device, read, say)
    if device is not None:
        raise MemdiagError(phrase("errors.plan-device"), phrase("errors.leave-out"))
    rows = lifespans_csv.read_rows(path)
    kind = ends or ("closed" if rows.is_last else "half-open")
    lower, upper = rows.lower + (kind == "open"), rows.upper + (kind == "closed")
    return BuffersToPlace(
        str(path), rows.ids, rows.lower, rows.upper, lower, upper, rows.size, lifespans_csv.FORMAT, kind, 1
    )


def _from_trace(
    path: Path, device: int | None, read: Callable[[Path], Trace] | None, say: Callable[[str], None]
) -> BuffersToPlace:
    """Returns the tensors of one device, with the events that bound their lifetimes.

    Raises:
        MemdiagError: It has no such device, or no tensors.
    """
    from memdiag.sources import load

    trace = (read or load)(path)
    if device is not None and all(each.device != device for each in trace.devices):
        have = ", ".join(str(each.device) for each in trace.devices) or phrase("errors.devices.none")
        raise MemdiagError(phrase("errors.no-device", device=str(device)), phrase("errors.devices", have=have))
    usable = [each for each in trace.devices if len(each.tensors) and (device is None or each.device == device)]
    if not usable:
        raise MemdiagError(phrase("errors.no-tensors", path=str(path)), phrase("errors.from-beginning"))
    chosen = max(usable, key=lambda each: int(_sizes(each).sum()))
    if len(usable) > 1:
        say(phrase("progress.device.planning", device=str(chosen.device), count=len(usable)))
    tensors = chosen.tensors
    reserved = int(chosen.usage.reserved.max(initial=-1))
    return BuffersToPlace(
        source=str(path),
        ids=tuple(str(row) for row in range(len(tensors))),
        shown_lower=tensors.alloc_at,
        shown_upper=tensors.free_completed_at,
        lower=tensors.alloc_at,
        upper=np.maximum(tensors.free_completed_at, tensors.alloc_at + 1),
        size=_sizes(chosen),
        form=trace.format,
        ends="half-open",
        align=OF_ALLOCATORS,
        device=chosen.device,
        outside=chosen.card.outside_bytes,
        before=int((tensors.alloc_at < 0).sum()),
        after=int((tensors.free_completed_at >= chosen.num_events).sum()),
        recorded=reserved
        if reserved >= int(chosen.usage.requested.max(initial=0))
        else None,  # some files contain contradictions
    )


def _sizes(device: DeviceTrace) -> Array:
    """Returns the bytes of each tensor: as requested, else those of its block."""
    tensors = device.tensors
    sizes: Array = np.maximum(np.where(tensors.requested_bytes >= 0, tensors.requested_bytes, tensors.block_bytes), 0)
    return sizes


def warm() -> None:
    """Compiles the planner, or loads it from the cache."""
    from memdiag.allocator.placement.improve import warm as warm_planner

    warm_planner()


def plan_buffers(
    buffers: BuffersToPlace,
    *,
    align: int | None = None,
    capacity: int | None = None,
    seconds: float = 60.0,
    seed: int = 0,
    output: Path | None = None,
    say: Callable[[str], None] = _silent,
) -> PlanReport:
    """Places buffers in as little memory as possible, and compares the plan with simpler methods.

    Args:
        buffers: The buffers, from ``read_buffers``.
        align: Alignment of offsets in bytes, or None for the source's default.
        capacity: Bytes of the device, at which the search stops, or None to search for the lowest plan.
        seconds: Time limit for the search.
        seed: Random seed.
        output: CSV file to write with id,lower,upper,size,offset, or None.
        say: Receives the state of the search, frequently.

    Raises:
        MemdiagError: The buffers cannot be placed, or the file cannot be written.
    """
    from memdiag.allocator.placement.api import plan as make_plan
    from memdiag.allocator.placement.model import SearchLimits
    from memdiag.allocator.placement.rivals import rivals
    from memdiag.allocator.placement.sweeper import load_of

    grain = align or buffers.align
    room = None if capacity is None else max(capacity - (buffers.outside or 0), 0)
    size, lower, upper = buffers.size, buffers.lower, buffers.upper
    made = make_plan(
        size,
        lower,
        upper,
        grain,
        room,
        SearchLimits(seconds, seed),
        say=lambda text: say(phrase("progress.planning", text=text)),
    )
    if output is not None:
        _write(output, buffers, made)
    say(phrase("progress.simpler"))
    others = rivals(size, lower, upper, grain)
    exists = lower < upper
    return PlanReport(
        path=buffers.source,
        format=buffers.form,
        device=buffers.device,
        interval_ends=buffers.ends,
        num_buffers=len(size),
        num_empty=int((~exists | (size == 0)).sum()),
        before=buffers.before,
        after=buffers.after,
        alignment_bytes=grain,
        seed=seed,
        time_limit_seconds=seconds,
        capacity_bytes=capacity,
        outside_bytes=buffers.outside,
        live_peak_bytes=made.load_bytes,
        requested_peak_bytes=load_of(size[exists], lower[exists], upper[exists]),
        height_bytes=made.height_bytes,
        lower_bound_bytes=made.bound_bytes,
        method=made.method,
        stop_reason=made.ended,
        seconds=made.seconds,
        rivals=others,
        recorded_peak_reserved_bytes=buffers.recorded,
        output=None if output is None else str(output),
    )


def _write(output: Path, buffers: BuffersToPlace, made: Plan) -> None:
    """Writes the offsets in minimalloc's format: the columns of its input, and one more."""
    import csv
    import io

    from memdiag.output_file import whole_file

    columns = (buffers.shown_lower.tolist(), buffers.shown_upper.tolist(), buffers.size.tolist(), made.offsets.tolist())
    with whole_file(output) as file, io.TextIOWrapper(file, "utf-8", newline="") as text:
        table = csv.writer(text, lineterminator="\n")
        table.writerow(("id", "lower", "upper", "size", "offset"))
        table.writerows(zip(buffers.ids, *columns, strict=True))
