"""Weaknesses of the recording that another recording would remove.

Notes (codes MD901 to MD949) list the facts that are missing in a file. These findings are the few cases in which the
user can do something. The texts are in ``messages/quality.json``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name, when
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.model import Trace
from memdiag.units import MIB, format_bytes, format_count

CODES: dict[str, str] = {
    "MD951": "the snapshot has no history",
    "MD952": "most live memory was allocated before the recording began",
    "MD953": "the recording has no call stacks",
    "MD954": "entries of the recording contradict each other",
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
    """Yields MD951."""
    reserved = view.device.start["reserved"]
    if reserved <= 0 or view.device.num_events > 1:  # _record_memory_history("state") keeps a ring of one entry
        return
    yield Finding(
        "MD951",
        phrase("quality.history.title", bytes=format_bytes(reserved)),
        "warning",
        view.device.device,
        (Evidence(phrase("quality.entries"), view.device.num_events, "events"),),
        (Fix(phrase("quality.history.fix"), "record", _record(backend, "max_entries=1_000_000")),),
    )


def _before(view: DeviceView, backend: str | None) -> Iterator[Finding]:
    """Yields MD952."""
    device, tensors = view.device, view.device.tensors
    live = view.live
    size = tensors.block_bytes[live]
    unknown = int(size[(tensors.alloc_at[live] < 0) & (tensors.stack[live] < 0)].sum())
    total = int(size.sum())
    if device.num_events < MIN_ENTRIES or not total or unknown < max(BEFORE_SHARE * total, FLOOR):
        return
    evidence = [
        Evidence(phrase("quality.before.unknown"), unknown, "bytes", moment_name(device, view.at)),
        Evidence(phrase("quality.before.live"), total, "bytes"),
        Evidence(phrase("quality.entries"), device.num_events, "events"),
    ]
    allocs = np.flatnonzero(device.events.action == schema.ALLOC)
    steps = device.events.step[device.events.step >= 0]
    if len(allocs) and len(steps) and steps.max() > steps.min():
        evidence.append(Evidence(phrase("quality.before.steps"), int(steps.max() - steps.min()) + 1, "steps"))
    yield Finding(
        "MD952",
        phrase("quality.before.title", share=f"{unknown / total:.0%}", moment=when(view)),
        "info",
        device.device,
        tuple(evidence),
        (
            Fix(
                phrase("quality.before.fix"),
                "record",
                _record(
                    backend, f"max_entries={format_count(max(1_000_000, 4 * device.num_events)).replace(',', '_')}"
                ),
                "",
                phrase("quality.before.fix.caveat"),
            ),
        ),
    )


def _stacks(view: DeviceView, backend: str | None) -> Iterator[Finding]:
    """Yields MD953.

    Allocations in backward do not count: autograd's thread has no Python call stack, and may make most of them.
    """
    events = view.device.events
    is_alloc = events.action == schema.ALLOC
    stacks = events.stack[is_alloc & (events.phase != schema.PHASES.index("backward"))]
    without = int((stacks < 0).sum())
    if is_alloc.sum() < MIN_ENTRIES or not without or without < NO_STACK_SHARE * len(stacks):
        return
    yield Finding(
        "MD953",
        phrase("quality.stacks.title"),
        "warning",
        view.device.device,
        (
            Evidence(phrase("quality.stacks.without"), without, "allocations"),
            Evidence(phrase("quality.stacks.all"), len(stacks), "allocations"),
        ),
        (
            Fix(
                phrase("quality.stacks.fix"),
                "record",
                _record(backend, 'context="all", stacks="python"'),
                "",
                phrase("quality.stacks.fix.caveat"),
            ),
        ),
    )


def _contradictions(view: DeviceView) -> Iterator[Finding]:
    """Yields MD954."""
    device = view.device
    count = sum(device.anomalies.values())
    if device.num_events < MIN_ENTRIES or count < CONTRADICTIONS * device.num_events:
        return
    yield Finding(
        "MD954",
        phrase("quality.contradictions.title", share=f"{count / device.num_events:.0%}"),
        "warning",
        device.device,
        tuple(
            Evidence(phrase(f"anomalies.{kind}"), number, "events")
            for kind, number in sorted(device.anomalies.items())
            if number
        ),
        (Fix(phrase("quality.contradictions.fix"), "record"),),
    )
