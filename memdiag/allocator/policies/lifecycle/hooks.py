"""Finds in a trace the moments that MindSpeed's hooks would have seen, and reports the evidence for each of them.

The marks of memdiag's own recorder are the best evidence, followed by stacks. Repeating sizes show steps only. The
hooks are:

* set-up: ``setup_model_and_optimizer``. Here it starts with the first event of initialisation and ends with the last
  tensor allocated in it that is still live when the first step ends. After it the wrapper opens and closes one empty
  forward window.
* forward: calls of layers, or of the whole stack of layers (``hooks``).
* step: ``train_step``. Here it is a training step, which ends where the next one begins.
* optimizer: its first step that really updates, and those before it (skipped by the loss scaler). Here it ends with the
  first step that allocates optimizer state, or with the first step if there is no state. A trace that begins later has
  none of them. The hooked step is Megatron's, which also scales and clips gradients. If stacks show it, it is longer
  than the step of PyTorch's optimizer within it.
"""

from __future__ import annotations

import numpy as np

from memdiag.allocator.policies.lifecycle.marks import (
    FORWARD_BEGIN,
    FORWARD_END,
    PRECISE_BEGIN,
    PRECISE_END,
    RELEASE,
    STEP_BEGIN,
    STEP_END,
    HookMarks,
)
from memdiag.allocator.policies.lifecycle.module_calls import edges_of_layers, edges_of_stacks, with_those_too_deep
from memdiag.allocator.policies.lifecycle.stack_calls import edges_of
from memdiag.allocator.workload import Workload
from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace

HOOKS: tuple[str, ...] = ("layer", "stack")
_INITIALISATION, _FORWARD, _OPTIMIZER = (
    schema.PHASES.index(name) for name in ("initialisation", "forward", "optimizer")
)
_STATE = schema.CATEGORIES.index("optimizer_state")
_NONE = "none"
_MEGATRON = "megatron/core/optimizer/"

Event = tuple[int, int]  # the event before which a mark is placed, and its kind


def marks_of(trace: Trace, device: DeviceTrace, workload: Workload, hooks: str = "layer") -> HookMarks:
    """Returns the marks of a trace for its workload.

    Args:
        trace, device: The recording.
        workload: The workload inferred from it.
        hooks: Unit of a forward call: "layer" (up to MindSpeed 1.0.RC3) or "stack" (later).

    Raises:
        MemdiagError: ``hooks`` is unknown.
    """
    if hooks not in HOOKS:
        raise MemdiagError(phrase("errors.hooks", kind=hooks), phrase("errors.choose", names=", ".join(HOOKS)))
    phase, step = trace.bases.get("phase", _NONE), trace.bases.get("step", _NONE)
    steps = _steps(device)
    setup = _setup(trace, device, steps)
    forward, of_forward = _forward(trace, device, hooks)
    optimizer = _optimizer(trace, device, steps)
    # Marks before the same event are sorted: ends before beginnings, and outer beginnings before inner ones.
    found = sorted(
        [
            (at, rank, i, kind)
            for rank, marks in enumerate((setup, *steps, optimizer, forward))
            for i, (at, kind) in enumerate(marks)
        ]
    )
    at = np.array([event for event, *_ in found], np.int64)
    return HookMarks(
        at=np.searchsorted(workload.row, at, side="left").astype(np.int64),
        kind=np.array([kind for *_, kind in found], np.int8),
        bases={
            "setup": _NONE if len(setup) < 4 else phase if phase != _NONE else step,
            "forward": of_forward,
            "step": step if steps[1] else _NONE,
            "optimizer": phase if optimizer else _NONE,
        },
        hooks=hooks,
    )


def _steps(device: DeviceTrace) -> tuple[list[Event], list[Event]]:
    """Returns the events at which steps end, and at which they begin."""
    step = device.events.step
    changes = np.flatnonzero(np.diff(step, prepend=-1))
    begins = [(int(at), STEP_BEGIN) for at in changes if step[at] >= 0]
    ends = [(int(at), STEP_END) for at in changes if at and step[at - 1] >= 0]
    if len(step) and step[-1] >= 0:
        ends.append((device.num_events, STEP_END))
    return ends, begins


def _setup(trace: Trace, device: DeviceTrace, steps: tuple[list[Event], list[Event]]) -> list[Event]:
    """Returns the marks of the set-up: the empty window after it, and the phase itself if it is in the trace."""
    first_step = steps[1][0][0] if steps[1] else device.num_events
    made = device.events.phase[:first_step] == _INITIALISATION
    if trace.complete_from_start and not made.any() and first_step < device.num_events:
        made = np.ones(first_step, bool)
    if not made.any():
        return [(0, FORWARD_BEGIN), (0, FORWARD_END)]
    begin, end = int(np.argmax(made)), int(np.flatnonzero(made)[-1]) + 1
    tensors = device.tensors
    first_end = next((at for at, _ in steps[0] if at > first_step), device.num_events)
    stays = (tensors.alloc_at >= begin) & (tensors.alloc_at < end) & (tensors.free_requested_at >= first_end)
    if stays.any():
        end = int(tensors.alloc_at[stays].max()) + 1
    return [(begin, PRECISE_BEGIN), (end, PRECISE_END), (end, FORWARD_BEGIN), (end, FORWARD_END)]


def _forward(trace: Trace, device: DeviceTrace, hooks: str) -> tuple[list[Event], str]:
    """Returns the marks of forward calls, and the evidence for them."""
    edges: list[tuple[int, bool]] = []
    basis = _NONE
    if trace.recorded is not None:
        edges, basis = edges_of_stacks(trace.recorded, device), "marks"
        if hooks == "layer" and (layers := edges_of_layers(trace.recorded, device)):
            all_layers = with_those_too_deep(layers, edges, edges_of(trace.stacks, device, layers=True))
            edges, basis = all_layers, "marks" if len(all_layers) == len(layers) else "marks+stacks"
        elif hooks == "layer":
            edges = []
    if not edges:
        edges, basis = edges_of(trace.stacks, device, layers=hooks == "layer"), "stacks"
    if not edges:  # without visible layers, a whole forward pass is the best approximation
        inside = np.diff((device.events.phase == _FORWARD).astype(np.int8), prepend=0, append=0)
        edges, basis = (
            [(int(at), bool(inside[at] > 0)) for at in np.flatnonzero(inside)],
            f"phases ({trace.bases.get('phase', _NONE)})",
        )
    if not edges:
        return [], _NONE
    return [(at, FORWARD_BEGIN if begins else FORWARD_END) for at, begins in edges], basis


def _optimizer(trace: Trace, device: DeviceTrace, steps: tuple[list[Event], list[Event]]) -> list[Event]:
    """Returns the marks of the first optimizer steps, up to the first that updates."""
    at = np.flatnonzero(device.events.phase == _OPTIMIZER)
    if not len(at):
        return []
    begins = np.array([begin for begin, _ in steps[1]], np.int64)
    number = np.searchsorted(begins, at, side="right")
    change = np.flatnonzero(np.diff(number)) + 1
    spans = [_whole_step(trace, device, int(part[0]), int(part[-1]) + 1) for part in np.split(at, change)]
    tensors = device.tensors
    made = tensors.alloc_at[(tensors.category == _STATE) & (tensors.alloc_at >= 0)]
    real = next((i for i, (begin, end) in enumerate(spans) if ((made >= begin) & (made < end)).any()), None)
    if real is None:
        if not trace.complete_from_start:
            return []
        real = 0
    marks: list[Event] = []
    for begin, end in spans[: real + 1]:
        marks += [(begin, RELEASE), (begin, PRECISE_BEGIN), (end, PRECISE_END)]
    return marks


def _whole_step(trace: Trace, device: DeviceTrace, begin: int, end: int) -> tuple[int, int]:
    """Returns the events of a step of Megatron's optimizer, given those of PyTorch's optimizer within it.

    Without stacks of Megatron's step, these are returned unchanged.
    """
    asks = np.flatnonzero(device.events.action == schema.ALLOC)
    known: dict[int, bool] = {}

    def is_within(event: int) -> bool:
        stack = int(device.events.stack[event])
        if stack not in known:
            frames = trace.stacks[stack] if stack >= 0 else ()
            known[stack] = any(
                frame.name == "step" and _MEGATRON in frame.filename and frame.is_python for frame in frames
            )
        return known[stack]

    for event in asks[: np.searchsorted(asks, begin)][::-1].tolist():
        if not is_within(event):
            break
        begin = event
    for event in asks[np.searchsorted(asks, end) :].tolist():
        if not is_within(event):
            break
        end = event + 1
    return begin, end
