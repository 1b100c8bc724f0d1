"""Outputs of many forward passes that a program collects on the device, such as the predictions of an evaluation.

They are outputs and not autograd graphs (MD106): no backward frees them, and of each pass, two tensors or a small part
of its bytes are live. Older ones stay while newer ones come, unlike the keys and values of a layer. All passes are of
one step, or of a program without steps; what adds up from step to step is a leak (MD301). A pass that ran under
activation checkpointing keeps its inputs for backward, so these do not count.

A tensor of a trace has no views: if a program collects a slice of an output, the whole output is live.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from memdiag.analyzers.kept_passes import KEPT, find_passes, numbered
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.names import place_of
from memdiag.analyzers.support.places import moment_name, when
from memdiag.analyzers.support.sites import by_place, common_callers, first_finding
from memdiag.analyzers.support.without import peak_without, saving_without
from memdiag.results.finding import Evidence, Finding, Fix, Severity
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.schema import ALLOC, OOM, PHASES
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD135": "outputs of forward passes are collected on the device"}

FEWEST = 6  # passes
FEW_TENSORS = 2  # of one pass
SHARE, WARNING_SHARE = 0.1, 0.25  # of live bytes
FLOOR = 64 * MIB
NUM_PLACES = 3

_BACKWARD = PHASES.index("backward")
_CHECKPOINT = "/torch/utils/checkpoint.py"


@dataclass(frozen=True)
class Collected:
    """Outputs live at the moment of a view, and how long they are needed.

    Attributes:
        rows: The outputs.
        number: Number of passes that they are from.
        every: All tensors of the same call stacks and phase in the trace.
        since: Per tensor of ``every``, the event from which on only the collection holds it.
    """

    rows: Array
    number: int
    every: Array
    since: Array


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD135 of every device."""
    if trace.bases.get("phase") != "marks":
        return
    for view in context.views(trace):
        yield from first_finding(view, _collected)


def find_collected(view: DeviceView) -> Collected | None:
    """Returns the outputs that a program collects, or None."""
    device, tensors = view.device, view.device.tensors
    if view.at < 0 or find_passes(view) is not None:
        return None
    passes, of_tensor = numbered(view)
    rows = view.live[(of_tensor[view.live] >= 0) & (of_tensor[view.live] != passes[view.at])]
    rows = rows[(tensors.phase_free[rows] != _BACKWARD) & ~_is_recomputed(view)[tensors.stack[rows]]]
    if not len(rows):
        return None
    rows = rows[tensors.step_alloc[rows] == _step_of_most(view, rows)]
    number = of_tensor[rows]
    live, count = np.bincount(number, weights=tensors.block_bytes[rows]), np.bincount(number)
    made = (device.events.action == ALLOC) & (passes >= 0)
    asked = np.bincount(passes[made], weights=device.events.size[made], minlength=len(live))[: len(live)]
    is_output = (count <= FEW_TENSORS) | (live < KEPT * asked)
    rows = rows[is_output[number]]
    rows = rows[_are_from_many_passes(tensors.stack[rows], of_tensor[rows])]
    rows = rows[~_are_replaced(view, rows, passes, of_tensor)]
    num_passes = len(np.unique(of_tensor[rows]))
    if num_passes < FEWEST:
        return None
    every = np.flatnonzero((of_tensor >= 0) & np.isin(tensors.stack, tensors.stack[rows]))
    every = every[tensors.phase_free[every] != _BACKWARD]
    return Collected(rows, num_passes, every, _until_next(view, every, of_tensor))


def _step_of_most(view: DeviceView, rows: Array) -> int:
    """Returns the step that allocated most bytes of the tensors ``rows``."""
    tensors = view.device.tensors
    steps, which = np.unique(tensors.step_alloc[rows], return_inverse=True)
    return int(steps[np.bincount(which, weights=tensors.block_bytes[rows]).argmax()])


def _are_from_many_passes(stack: Array, number: Array) -> Array:
    """Returns which tensors have call stacks from which tensors of many passes are live."""
    stacks, which = np.unique(stack, return_inverse=True)
    pairs = np.unique(np.stack((which, number)), axis=1)[0]
    found: Array = (np.bincount(pairs, minlength=len(stacks)) >= FEWEST)[which]
    return found


def _are_replaced(view: DeviceView, rows: Array, passes: Array, of_tensor: Array) -> Array:
    """Returns which tensors have call stacks whose older tensors are freed one after the other, as newer ones come.

    The program then keeps the latest ones only, such as the keys and values of each layer.
    """
    tensors = view.device.tensors
    found = np.zeros(len(rows), bool)
    for stack in np.unique(tensors.stack[rows]).tolist():
        mine = tensors.stack[rows] == stack
        every = np.flatnonzero((of_tensor >= 0) & (tensors.stack == stack))
        gone = every[tensors.free_requested_at[every] < view.device.num_events]
        freed = tensors.free_requested_at[gone]
        num_made = np.unique(np.searchsorted(tensors.alloc_at[every], freed[passes[freed] != of_tensor[gone]]))
        found[mine] = 2 * np.count_nonzero(num_made < len(every)) >= np.count_nonzero(mine)
    return found


def _is_recomputed(view: DeviceView) -> Array:
    """Returns, by stack, whether activation checkpointing called the code."""
    stacks = view.trace.stacks
    named = np.array([frame.filename.replace("\\", "/").endswith(_CHECKPOINT) for frame in stacks.frames], bool)
    found: Array = np.append(stacks.with_frame(named), False)
    return found


def _until_next(view: DeviceView, rows: Array, of_tensor: Array) -> Array:
    """Returns, per tensor, the event at which the next pass allocates its output: only then, this one is in excess."""
    tensors = view.device.tensors
    order = np.lexsort((tensors.alloc_at[rows], tensors.stack[rows]))
    key = np.stack((tensors.stack[rows[order]], of_tensor[rows[order]]))
    is_first = np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0))
    first = np.flatnonzero(is_first)
    begins = tensors.alloc_at[rows[order[first]]]
    follows = np.append(key[0, first[1:]] == key[0, first[:-1]], False)
    then = np.where(follows, np.append(begins[1:], 0), view.device.num_events)
    since = np.empty(len(rows), np.int64)
    since[order] = then[np.cumsum(is_first) - 1]
    return since


def _caller(view: DeviceView, rows: Array) -> str:
    """Returns the line of the program that calls the model, or "" if the outputs are from several lines."""
    lines = common_callers(view, view.device.tensors.stack[rows])
    before = list(takewhile(lambda line: not line.endswith(" forward"), lines))
    return next(reversed(before or lines), "")


def _collected(view: DeviceView) -> Iterator[Finding]:
    """Yields MD135."""
    device, tensors, found = view.device, view.device.tensors, find_collected(view)
    total = int(tensors.block_bytes[view.live].sum())
    held = int(tensors.block_bytes[found.rows].sum()) if found else 0
    if found is None or held < max(SHARE * total, FLOOR):
        return
    caller = _caller(view, found.rows)
    yield Finding(
        "MD135",
        phrase(
            "collected.title",
            count=found.number,
            place=phrase("kept_passes.from", place=caller) if caller else "",
            bytes=format_bytes(held),
            share=f"{held / total:.0%}",
            when=when(view),
        ),
        _severity(view, held / total),
        device.device,
        (
            Evidence(phrase("collected.held"), held, "bytes", moment_name(device, view.at)),
            Evidence(phrase("collected.passes"), found.number, "passes"),
            Evidence(phrase("collected.count"), len(found.rows), "tensors"),
            peak_without(device, found.every, since=found.since),
            *(
                Evidence(phrase("collected.site"), place.bytes, "bytes", place_of(view, place.rows, place.label))
                for place in by_place(view, found.rows)[:NUM_PLACES]
            ),
        ),
        (
            *AllocatorSettings.of(view.trace).offers("outputs-to-host"),
            Fix(
                phrase("collected.copy"),
                "code",
                "outputs.append(output[:, 0].clone())  # not: outputs.append(output[:, 0])",
                phrase("collected.copy.when"),
                phrase("collected.copy.caveat"),
            ),
        ),
        saving_without(device, found.every, since=found.since),
        held,
    )


def _severity(view: DeviceView, share: float) -> Severity:
    """Returns the severity: a good part of live memory is the first thing to change after a failure."""
    ran_out = bool((view.device.events.action == OOM).any())
    if share < WARNING_SHARE:
        return "warning" if ran_out else "info"
    return "critical" if ran_out else "warning"
