"""Memory that a sleeping process keeps: a trainer or an inference engine that shares its card and takes turns.

The process that goes to sleep releases its memory so that another one can use the card. Memory that it keeps is not
available to the other process, and often grows with every turn. A recording shows turns: the process releases at least
half of its memory and reserves it again later, and the memory of other processes on the card changes, or the program
marks its sleeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name
from memdiag.analyzers.support.sites import label_of
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.recorded import MARK
from memdiag.trace.table import Array, Table
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD303": "memory kept by a process in sleep mode"}

HIGH = 0.5  # fraction of the reserved peak: a process that reaches it is awake
LOW = 0.5  # fraction of its own high: a process that falls below it sleeps
TAKEN = 0.05  # fraction of the card by which the memory of other processes changes: else nobody takes turns
SHARE = 0.02  # fraction of the card
WARNING_SHARE = 0.05  # fraction of the card
GROWTH = 0.1  # fraction of the first residue
FLOOR = 64 * MIB
NUM_PLACES = 3


@dataclass(frozen=True)
class Sleep:
    """One sleep of a process.

    Attributes:
        at: The event after which it holds least.
        reserved: Reserved bytes after this event, as far as they are on the card.
        outside: Its bytes outside the allocator, or -1 if unknown.
        unmapped: Reserved bytes that another allocator has unmapped, which therefore are not on the card.
    """

    at: int
    reserved: int
    outside: int
    unmapped: int = 0

    @property
    def held(self) -> int:
        """Bytes that it keeps on the card, as far as known."""
        return self.reserved + max(self.outside, 0)


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD303 of every device."""
    for view in context.views(trace):
        if view.device.num_events and len(view.device.samples):
            yield from _residue(view)


def find_sleeps(trace: Trace, device: DeviceTrace) -> list[Sleep]:
    """Returns the times at which the process had released most of its memory, if it shares its card."""
    if not (_marks_sleeps(trace) or _others_change(device.samples)):
        return []
    unmapped = _unmapped(device)
    mapped = device.usage.reserved - unmapped
    return [_sleep(device, mapped, unmapped, first, last) for first, last in _valleys(mapped)]


def _unmapped(device: DeviceTrace) -> Array:
    """Returns, for every event, the reserved bytes that are not on the card, according to the latest sample.

    vLLM's CuMemAllocator and torch_memory_saver unmap memory behind PyTorch's back, and PyTorch still counts it.
    """
    samples = device.samples
    rows = np.flatnonzero(samples.at_event >= 0)
    most = np.where(samples.own >= 0, samples.own, samples.total - samples.free)[rows]
    missing = np.append(0, np.maximum(samples.reserved[rows] - most, 0))
    found = missing[np.searchsorted(samples.at_event[rows], np.arange(device.num_events) + 1, side="right")]
    unmapped: Array = np.minimum(found, np.maximum(device.usage.reserved, 0))
    return unmapped


def _marks_sleeps(trace: Trace) -> bool:
    """Returns whether the program has named a moment by a word like sleep (``memdiag.mark("asleep")``)."""
    if trace.recorded is None:
        return False
    marks, names = trace.recorded.marks, trace.recorded.names
    named = np.unique(marks["value"][marks["kind"] == MARK]).tolist()
    return any("sleep" in names[value].lower() for value in named if 0 <= value < len(names))


def _others_change(samples: Table) -> bool:
    """Returns whether the memory of other processes changes: else nobody takes turns with this one."""
    others = samples.others[samples.others >= 0]
    if not len(others):
        others = samples.total - samples.free - samples.reserved
    return bool(others.max() - others.min() >= TAKEN * int(samples.total[0]))


def _valleys(reserved: Array) -> Iterator[tuple[int, int]]:
    """Yields first and last event of every stretch in which little is reserved, after much was."""
    least = HIGH * int(reserved.max(initial=0))
    high, begin = 0, -1
    for at in np.flatnonzero(np.diff(reserved, prepend=0)).tolist():
        now = int(reserved[at])
        if begin < 0:
            high = max(high, now)
            if high >= least and now <= LOW * high:
                begin = at
        elif now >= least:
            yield begin, at - 1
            high, begin = now, -1
    if begin >= 0:
        yield begin, len(reserved) - 1


def _sleep(device: DeviceTrace, mapped: Array, unmapped: Array, first: int, last: int) -> Sleep:
    samples = device.samples
    inside = (samples.at_event > first) & (samples.at_event <= last + 1) & (samples.own >= samples.reserved)
    rows = np.flatnonzero(inside)
    outside = int((samples.own - samples.reserved)[rows].min()) if len(rows) else -1
    at = first + int(np.argmin(mapped[first : last + 1]))
    return Sleep(at, int(mapped[at]), outside, int(unmapped[at]))


def _residue(view: DeviceView) -> Iterator[Finding]:
    device, total = view.device, int(view.device.samples.total[0])
    sleeps = find_sleeps(view.trace, device)
    if not sleeps:
        return
    if not all(sleep.outside >= 0 for sleep in sleeps):
        sleeps = [replace(sleep, outside=-1) for sleep in sleeps]
    first, last = sleeps[0], sleeps[-1]
    growth = last.held - first.held
    grows = growth >= max(GROWTH * first.held, FLOOR)
    if last.reserved < max(SHARE * total, FLOOR) and not grows:
        return
    live = device.live(last.at, pending=True)
    # Which tensors are in unmapped memory is unknown: then the parts are unknown, too.
    active = -1 if last.unmapped else int(device.tensors.block_bytes[live].sum())
    ran_out = bool((device.events.action == schema.OOM).any())
    yield Finding(
        "MD303",
        phrase("residue.title.grows", bytes=format_bytes(last.held), growth=format_bytes(growth), count=len(sleeps))
        if grows
        else phrase("residue.title", bytes=format_bytes(last.held), count=len(sleeps)),
        "critical" if ran_out and grows else "warning" if grows or last.reserved >= WARNING_SHARE * total else "info",
        device.device,
        tuple(_evidence(view, sleeps, live, active)),
        tuple(_fixes(active, first, last)),
        weight_bytes=last.held,
    )


def _evidence(view: DeviceView, sleeps: list[Sleep], live: Array, active: int) -> Iterator[Evidence]:
    device, last = view.device, sleeps[-1]
    yield Evidence(phrase("residue.last"), last.held, "bytes", moment_name(device, last.at))
    if last.unmapped:
        yield Evidence(phrase("residue.unmapped"), last.unmapped, "bytes")
    else:
        yield Evidence(phrase("residue.live"), active, "bytes")
        yield Evidence(phrase("residue.free"), last.reserved - active, "bytes")
    if last.outside >= 0:
        yield Evidence(phrase("residue.outside"), last.outside, "bytes")
    yield Evidence(phrase("residue.first"), sleeps[0].held, "bytes", moment_name(device, sleeps[0].at))
    yield Evidence(phrase("residue.count"), len(sleeps), "")
    if last.unmapped:
        return
    stacks, size = device.tensors.stack[live], device.tensors.block_bytes[live]
    found = np.unique(stacks[stacks >= 0])
    held = sorted(((int(size[stacks == stack].sum()), stack) for stack in found.tolist()), reverse=True)
    for amount, stack in held[:NUM_PLACES]:
        yield Evidence(phrase("residue.site"), amount, "bytes", label_of(view, stack))


def _fixes(active: int, first: Sleep, last: Sleep) -> Iterator[Fix]:
    """Yields what releases the largest part first; the context of the runtime, which cannot be released, is no part."""
    parts = [(last.outside - first.outside, "outside")]
    parts += [(active, "live"), (last.reserved - active, "free")] if active >= 0 else [(last.reserved, "live")]
    for size, part in sorted(parts, reverse=True):
        if size >= FLOOR:
            yield Fix(
                phrase(f"residue.fix.{part}"),
                "code",
                phrase("residue.fix.free.change") if part == "free" else "",
                phrase("remedies.every"),
                phrase(f"residue.fix.{part}.caveat"),
            )
