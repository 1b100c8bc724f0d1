"""Forward passes that retain activations although no backward uses them.

Examples are evaluation without ``no_grad``, and retained losses.

A forward pass keeps the tensors that its backward needs. Normally one pass is live at a time, or a fixed number of them
(a pipeline, several losses of one backward). More live passes than at the start of any earlier backward, none of them
freed by a backward, mean that a variable keeps their graphs: an output, a loss or a prediction in a list. If a backward
follows each of them, it ran with ``retain_graph=True``, often for a hidden state that a step takes from the one before.

This needs the recorder's marks, because call stacks alone do not separate one pass from the next. A pass counts if a
good part of its tensors is still live, from the same call sites as in the largest pass: outputs that are collected
under ``no_grad`` are a small part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name
from memdiag.analyzers.support.sites import common_callers, first_finding
from memdiag.analyzers.support.without import peak_without, saving_without
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.schema import ALLOC, CATEGORIES, OOM, PHASES
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD106": "autograd graphs retained without a backward pass"}

FEWEST = 3  # passes, excluding the running one
SHARE = 0.1  # of live bytes
FLOOR = 64 * MIB
KEPT = 0.3  # of the bytes that a pass allocated: it retained its graph
ALIKE = 0.5  # fraction of its bytes from call sites that the largest pass has too
FEWEST_PLACES = 3  # sources of a graph
USED = 0.2  # of the bytes are freed by a backward, so one was expected
LOOKS = 32  # number of earlier moments to examine: each takes time proportional to the number of events

_FORWARD, _BACKWARD, _OUTSIDE = (PHASES.index(name) for name in ("forward", "backward", "outside"))
_INPUT = CATEGORIES.index("input")
_FUNCTIONS = "/torch/nn/functional.py"
_LOSSES = "/torch/nn/modules/loss.py"
_BY_DESIGN = [
    *(CATEGORIES.index(name) for name in ("parameter", "gradient", "optimizer_state", "workspace", "kv_cache")),
    _INPUT,
]


@dataclass(frozen=True)
class KeptPasses:
    """Forward passes that are retained at a moment, except the running one.

    Attributes:
        number: Number of passes.
        rows: Their tensors.
        usual: Largest number at the start of an earlier backward.
        steps: Steps in which they ran.
        follows: Whether a backward pass came right after most of them, and freed nothing of them.
        avoidable: Tensors of the whole trace that would not be live without the mistake.
        num_used: Number of passes of the same step that its backward used and freed; 0 if unknown.
    """

    number: int
    rows: Array
    usual: int
    steps: Array
    follows: bool
    avoidable: Array
    num_used: int = 0


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD106 of every device."""
    if trace.bases.get("phase") != "marks":
        return
    for view in context.views(trace):
        yield from first_finding(view, _kept)


def _kept(view: DeviceView) -> Iterator[Finding]:
    if view.at >= 0 and (found := find_passes(view) or _find_unused(view)) is not None:
        yield _finding(view, found)


def find_passes(view: DeviceView) -> KeptPasses | None:
    """Returns the forward passes that are retained without use at the moment of a view, or None."""
    device, tensors = view.device, view.device.tensors
    passes, of_tensor = numbered(view)
    now = graphs_at(view, passes, of_tensor, view.at)
    is_backward = device.events.phase[view.at] == _BACKWARD
    now = now[now != (passes[: view.at + 1].max() if is_backward else passes[view.at])]
    if len(now) < FEWEST:
        return None
    rows = device.live(view.at)
    rows = rows[np.isin(of_tensor[rows], now)]
    size = tensors.block_bytes[rows]
    if size.sum() < max(SHARE * tensors.block_bytes[device.live(view.at)].sum(), FLOOR):
        return None
    freed = tensors.free_requested_at[rows] < device.num_events
    if size[freed & (tensors.phase_free[rows] == _BACKWARD)].sum() > USED * size.sum():
        return None
    phase = device.events.phase[: view.at + 1]
    begins = np.flatnonzero((phase[1:] == _BACKWARD) & (phase[:-1] != _BACKWARD))
    usual = _usual(view, passes, of_tensor, begins[begins < tensors.alloc_at[rows].min()])
    if len(now) <= usual:
        return None
    follows = 2 * _num_followed(device, passes, now) > len(now)
    avoidable = all_such(view, rows)
    if follows:  # the running pass needs its graph; in an evaluation, no pass does
        avoidable = np.setdiff1d(avoidable, np.setdiff1d(device.live(view.at), rows))
    return KeptPasses(len(now), rows, usual, np.unique(tensors.step_alloc[rows]), follows, avoidable)


def numbered(view: DeviceView) -> tuple[Array, Array]:
    """Returns the number of the forward pass of each event, and of each tensor that its graph may keep; -1: none."""
    tensors, passes = view.device.tensors, _with_losses(view, _passes(view.device))
    made = (tensors.alloc_at >= 0) & (~np.isin(tensors.category, _BY_DESIGN) | _of_losses(view))
    return passes, np.where(made, passes[np.maximum(tensors.alloc_at, 0)], -1)


def _find_unused(view: DeviceView) -> KeptPasses | None:
    """Returns the forward passes of a step that its backward does not use, although it frees others of them, or None.

    Meta-learning may keep the loss of each update, and use only the last one. A backward may also retain the graphs
    that it uses, but then it computes gradients for all of them.
    """
    device, tensors = view.device, view.device.tensors
    step = device.events.step == device.events.step[view.at]
    in_backward = np.flatnonzero(step & (device.events.phase == _BACKWARD))
    passes, of_tensor = numbered(view)
    now = graphs_at(view, passes, of_tensor, view.at)
    if not len(in_backward) or len(now) <= FEWEST:
        return None
    rows = device.live(view.at)
    rows = rows[np.isin(of_tensor[rows], now)]
    size, later = tensors.block_bytes[rows], tensors.free_requested_at[rows] > in_backward[-1]
    freed = ~later & (tensors.phase_free[rows] == _BACKWARD)

    def share(which: Array) -> Array:
        of_pass, total = (np.bincount(of_tensor[rows], weights=size * each) for each in (which, np.ones(len(rows))))
        return np.asarray(of_pass[now] / total[now])

    used, left = now[share(freed) > 1 - ALIKE], now[share(later) > 1 - USED]
    rows = rows[np.isin(of_tensor[rows], left)]
    if not len(used) or len(left) < max(FEWEST, 2 * len(used)):
        return None
    if tensors.block_bytes[rows].sum() < max(SHARE * tensors.block_bytes[device.live(view.at)].sum(), FLOOR):
        return None
    largest = tensors.requested_bytes == tensors.requested_bytes[rows].max()
    after = (tensors.phase_alloc == _BACKWARD) & (tensors.alloc_at > tensors.alloc_at[rows].max())
    num_gradients = np.count_nonzero(largest & after & (tensors.alloc_at <= in_backward[-1]))
    if num_gradients * len(left) > 2 * np.count_nonzero(largest[rows]) * len(used):
        return None
    steps = np.unique(tensors.step_alloc[rows])
    return KeptPasses(len(left), rows, len(used), steps, False, all_such(view, rows), len(used))


def _num_followed(device: DeviceTrace, passes: Array, numbers: Array) -> int:
    """Returns after how many of the given forward passes the next pass is a backward pass."""
    phase = device.events.phase
    at = np.flatnonzero((passes >= 0) & (phase == _FORWARD) | (phase == _BACKWARD))
    key = np.where(phase[at] == _BACKWARD, -1, passes[at])
    key = key[np.append(True, key[1:] != key[:-1])]
    return int((np.isin(key[:-1], numbers) & (key[1:] < 0)).sum())


def _of_losses(view: DeviceView) -> Array:
    """Returns which inputs of modules are made by other modules, or by a function for losses between two forwards."""
    stacks, tensors = view.trace.stacks, view.device.tensors
    named = np.array([frame.filename.replace("\\", "/").endswith(_FUNCTIONS) for frame in stacks.frames], bool)
    below = np.append(stacks.with_frame(named), False) if named.any() else np.zeros(len(stacks) + 1, bool)
    found: Array = (below[tensors.stack] | (tensors.phase_alloc == _FORWARD)) & (tensors.category == _INPUT)
    return found


def _passes(device: DeviceTrace) -> Array:
    """Returns, per event, the number of its forward pass, or -1.

    Events outside the model right after it belong to its loss.
    """
    phase = device.events.phase
    is_first = np.concatenate(([True], phase[1:] != phase[:-1]))  # of a visit of one phase
    own = phase[is_first]
    number = np.arange(len(own))
    follows = (own == _OUTSIDE) & (np.concatenate(([-1], own[:-1])) == _FORWARD)
    found: Array = np.where(own == _FORWARD, number, np.where(follows, number - 1, -1))[np.cumsum(is_first) - 1]
    return found


def in_losses(view: DeviceView) -> Array:
    """Returns which tensors are made in the modules of PyTorch that compute losses."""
    stacks = view.trace.stacks
    named = np.array([frame.filename.replace("\\", "/").endswith(_LOSSES) for frame in stacks.frames], bool)
    below = np.append(stacks.with_frame(named), False) if named.any() else np.zeros(len(stacks) + 1, bool)
    found: Array = below[view.device.tensors.stack]
    return found


def _with_losses(view: DeviceView, passes: Array) -> Array:
    """Returns the passes with those that only compute a loss in a module of PyTorch as part of the one before."""
    tensors, below = view.device.tensors, in_losses(view)
    if not below.any():
        return passes
    at = np.maximum(tensors.alloc_at, 0)
    made = (tensors.alloc_at >= 0) & (view.device.events.phase[at] == _FORWARD)
    of_tensor = np.where(made, passes[at], -1)
    numbers = np.unique(passes[passes >= 0])
    others = np.unique(of_tensor[~below & (of_tensor >= 0)])
    is_loss = np.isin(numbers, of_tensor[below]) & ~np.isin(numbers, others)
    place = np.maximum.accumulate(np.where(is_loss, -1, np.arange(len(numbers))))
    owner = np.where(place >= 0, numbers[place], numbers)
    found: Array = np.where(passes >= 0, owner[np.searchsorted(numbers, np.maximum(passes, numbers[0]))], -1)
    return found


def _usual(view: DeviceView, passes: Array, of_tensor: Array, begins: Array) -> int:
    """Returns the largest number of forward passes that were live at one of the events ``begins``."""
    tensors, num_events = view.device.tensors, view.device.num_events
    rows = np.flatnonzero(of_tensor >= 0)
    until, since = np.zeros(num_events + 1, np.int64), np.full(num_events + 1, num_events)
    np.maximum.at(until, of_tensor[rows], np.minimum(tensors.free_requested_at[rows], num_events))
    np.minimum.at(since, of_tensor[rows], tensors.alloc_at[rows])
    since, until = since[until > 0], until[until > 0]
    change = np.bincount(since, minlength=num_events + 1) - np.bincount(until, minlength=num_events + 1)
    at_most = np.cumsum(change)[begins]  # any tensor of a pass counts
    usual = 0
    for at in np.argsort(-at_most, kind="stable")[:LOOKS].tolist():
        if at_most[at] <= usual:
            break
        usual = max(usual, len(graphs_at(view, passes, of_tensor, int(begins[at]))))
    return usual


def graphs_at(view: DeviceView, passes: Array, of_tensor: Array, at: int) -> Array:
    """Returns the numbers of the forward passes that have most of their graph at event ``at``."""
    device, tensors = view.device, view.device.tensors
    rows = device.live(at)
    rows = rows[of_tensor[rows] >= 0]
    if not len(rows):
        return np.empty(0, np.int64)
    number = int(passes.max()) + 1
    there = np.bincount(of_tensor[rows], weights=tensors.block_bytes[rows], minlength=number)
    action, size = device.events.action[: at + 1], device.events.size[: at + 1]
    allocs = (action == ALLOC) & (passes[: at + 1] >= 0)
    asked = np.bincount(passes[: at + 1][allocs], weights=size[allocs], minlength=number)
    largest = rows[of_tensor[rows] == int(np.argmax(there))]
    stacks, which = np.unique(tensors.stack[rows], return_inverse=True)
    numbers: dict[str, int] = {}  # a model is called from several lines
    place = np.array([numbers.setdefault(view.label(stack), len(numbers)) for stack in stacks.tolist()], np.int64)[
        which
    ]
    keys = place * (len(view.trace.strings) + 1) + tensors.name[rows]
    places = np.unique(keys[np.isin(rows, largest)])
    if len(np.unique(tensors.stack[largest])) < FEWEST_PLACES:
        return np.empty(0, np.int64)
    alike = np.isin(keys, places)
    same = np.bincount(of_tensor[rows[alike]], weights=tensors.block_bytes[rows[alike]], minlength=number)
    return np.flatnonzero(
        (there > 0) & (there >= KEPT * asked) & (same >= ALIKE * there) & (there >= ALIKE / 2 * there.max())
    )


def all_such(view: DeviceView, rows: Array) -> Array:
    """Returns the tensors from the same lines in the whole trace that no backward freed."""
    tensors = view.device.tensors
    same = (tensors.stack >= 0) & np.isin(tensors.stack, np.unique(tensors.stack[rows])) & (tensors.alloc_at >= 0)
    return np.flatnonzero(same & (tensors.phase_free != _BACKWARD))


def _caller(view: DeviceView, rows: Array) -> str:
    """Returns the innermost user line under which all given tensors were allocated, or ""."""
    return next(reversed(common_callers(view, view.device.tensors.stack[rows])), "")


def _finding(view: DeviceView, found: KeptPasses) -> Finding:
    device, tensors = view.device, view.device.tensors
    held = int(tensors.block_bytes[found.rows].sum())
    total = int(tensors.block_bytes[device.live(view.at)].sum())
    ran_out = bool((device.events.action == OOM).any())
    caller = _caller(view, found.rows)
    words: dict[str, object] = {
        "count": found.number,
        "place": phrase("kept_passes.from", place=caller) if caller else "",
        "bytes": format_bytes(held),
        "share": f"{held / total:.0%}",
    }
    return Finding(
        "MD106",
        phrase("kept_passes.title.after" if found.follows else "kept_passes.title", **words),
        "critical" if ran_out else "warning",
        device.device,
        tuple(_evidence(view, found, held)),
        (
            *(_detached_state() if found.follows else AllocatorSettings.of(view.trace).offers("no-graph")),
            *(_backward_of_each() if ran_out and _may_wait(view, found) else ()),
            Fix(
                phrase("kept_passes.fix.detach"),
                "code",
                phrase("kept_passes.fix.detach.change"),
                phrase("kept_passes.fix.detach.when"),
                phrase("kept_passes.fix.detach.caveat"),
            ),
        )[:: -1 if found.num_used else 1],
        saving_without(device, found.avoidable),
        held,
    )


def _detached_state() -> Iterator[Fix]:
    """Yields the remedy for graphs that their own backward pass does not free."""
    yield Fix(
        phrase("kept_passes.fix.state"),
        "code",
        phrase("kept_passes.fix.state.change"),
        phrase("kept_passes.fix.state.when"),
        phrase("kept_passes.fix.state.caveat"),
    )


def _may_wait(view: DeviceView, found: KeptPasses) -> bool:
    """Returns whether all passes are of the running step of a training, and its backward has not begun.

    A program may add up their losses for one backward.
    """
    recorded, events = view.trace.recorded, view.device.events
    step = int(events.step[view.at])
    has_begun = bool(((events.step == step) & (events.phase == _BACKWARD)).any())
    is_training = recorded is not None and len(recorded.ended.optimizers) > 0
    return is_training and not has_begun and found.steps.tolist() == [step]


def _backward_of_each() -> Iterator[Fix]:
    """Yields the remedy for a training that accumulates gradients, but keeps all graphs for one backward."""
    yield Fix(
        phrase("kept_passes.fix.each"),
        "code",
        phrase("kept_passes.fix.each.change"),
        phrase("kept_passes.fix.each.when"),
        phrase("kept_passes.fix.each.caveat"),
    )


def _evidence(view: DeviceView, found: KeptPasses, held: int) -> Iterator[Evidence]:
    yield Evidence(phrase("kept_passes.kept"), held, "bytes", moment_name(view.device, view.at))
    if caller := _caller(view, found.rows):
        yield Evidence(phrase("kept_passes.site"), held, "bytes", caller)
    yield peak_without(view.device, found.avoidable)
    first, last = str(found.steps[0]), str(found.steps[-1])
    steps = (
        phrase("kept_passes.steps", first=first, last=last)
        if len(found.steps) > 1
        else phrase("places.step", step=first)
    )
    yield Evidence(phrase("kept_passes.graphs"), found.number, "graphs", steps)
    yield Evidence(phrase("kept_passes.used" if found.num_used else "kept_passes.usual"), found.usual, "graphs")
