"""Whether the recording itself is good enough, said only where recording again would make the diagnosis better.

What a file cannot know stands in the notes (codes MD901 to MD949). Here are the few cases in which the user can do something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.context import Context, DeviceView
from memdiag.analyzers.places import moment_name
from memdiag.findings import Evidence, Finding, Fix
from memdiag.trace import schema
from memdiag.trace.model import Trace
from memdiag.units import MIB, format_bytes, format_count

CODES: dict[str, str] = {
    "MD951": "the snapshot holds no history",
    "MD952": "most of what is live was allocated before the recording began",
    "MD953": "the recording has no stacks",
    "MD954": "the recording contradicts itself",
}

BEFORE_SHARE = 0.5  # of live bytes
NO_STACK_SHARE = 0.9  # of allocations
CONTRADICTIONS = 0.01  # of entries
FLOOR = 32 * MIB
MIN_ENTRIES = 100  # shorter traces are examples and tests
_SNAPSHOTS = ("torch-snapshot", "memory-viz-html")  # formats that can hold history and stacks


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields findings MD951 to MD954 of every device."""
    for view in context.views(trace):
        if trace.format in _SNAPSHOTS:
            yield from _history(view, trace.backend)
            yield from _before(view, trace.backend)
            yield from _stacks(view, trace.backend)
        yield from _contradictions(view)


def _record(backend: str | None, arguments: str) -> str:
    return f"torch.{'npu' if backend == 'npu' else 'cuda'}.memory._record_memory_history({arguments})"


def _history(view: DeviceView, backend: str | None) -> Iterator[Finding]:
    """MD951."""
    reserved = view.device.start["reserved"]
    if reserved <= 0 or view.device.num_events > 1:  # _record_memory_history("state") keeps a ring of one entry
        return
    yield Finding(
        "MD951",
        f"The snapshot shows {format_bytes(reserved)} reserved but not how it came about: nothing was recorded",
        "warning",
        view.device.device,
        (Evidence("entries in the trace", view.device.num_events, "events"),),
        (
            Fix(
                "Start recording before the model is built, and take the snapshot afterwards",
                "record",
                _record(backend, "max_entries=1_000_000"),
            ),
        ),
    )


def _before(view: DeviceView, backend: str | None) -> Iterator[Finding]:
    """MD952."""
    device, tensors = view.device, view.device.tensors
    at = device.peak("allocated")
    live = device.live(at, pending=True)
    size = tensors.block_bytes[live]
    unknown = int(size[(tensors.alloc_at[live] < 0) & (tensors.stack[live] < 0)].sum())
    total = int(size.sum())
    if device.num_events < MIN_ENTRIES or not total or unknown < max(BEFORE_SHARE * total, FLOOR):
        return
    evidence = [
        Evidence("live bytes of unknown origin", unknown, "bytes", moment_name(device, at)),
        Evidence("live bytes in all", total, "bytes"),
        Evidence("entries in the trace", device.num_events, "events"),
    ]
    allocs = np.flatnonzero(device.events.action == schema.ALLOC)
    steps = device.events.step[device.events.step >= 0]
    if len(allocs) and len(steps) and steps.max() > steps.min():
        evidence.append(Evidence("steps that they cover", int(steps.max() - steps.min()) + 1, "steps"))
    yield Finding(
        "MD952",
        f"{unknown / total:.0%} of live memory was allocated before the recording began, by unknown code",
        "info",
        device.device,
        tuple(evidence),
        (
            Fix(
                "Start recording before the model is built, with room for all entries",
                "record",
                _record(backend, f"max_entries={format_count(max(1_000_000, 4 * device.num_events)).replace(',', '_')}"),
                "",
                "when the ring is full the oldest entries go first; each entry takes some hundred bytes of host memory",
            ),
        ),
    )


def _stacks(view: DeviceView, backend: str | None) -> Iterator[Finding]:
    """MD953."""
    events = view.device.events
    stacks = events.stack[events.action == schema.ALLOC]
    without = int((stacks < 0).sum())
    if len(stacks) < MIN_ENTRIES or without < NO_STACK_SHARE * len(stacks):
        return
    yield Finding(
        "MD953",
        "Without stacks nothing can be said about where in the code memory is allocated",
        "warning",
        view.device.device,
        (Evidence("allocations without a stack", without, "allocations"), Evidence("allocations", len(stacks), "allocations")),
        (
            Fix(
                "Record with Python stacks",
                "record",
                _record(backend, 'context="all", stacks="python"'),
                "",
                'stacks="all" adds C++ frames and makes the snapshot many times slower to write',
            ),
        ),
    )


def _contradictions(view: DeviceView) -> Iterator[Finding]:
    """MD954."""
    device = view.device
    count = sum(device.anomalies.values())
    if device.num_events < MIN_ENTRIES or count < CONTRADICTIONS * device.num_events:
        return
    yield Finding(
        "MD954",
        f"{count / device.num_events:.0%} of the entries contradict others: take the numbers with care",
        "warning",
        device.device,
        tuple(Evidence(kind.replace("_", " "), number, "events") for kind, number in sorted(device.anomalies.items()) if number),
        (
            Fix(
                "Record again: take the snapshot when no other thread allocates, and do not change max_entries in between",
                "record",
            ),
        ),
    )
