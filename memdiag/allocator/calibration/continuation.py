"""Estimates the requests of a program after an allocation that failed.

If an earlier complete step made the same requests up to the failed one, the program probably continues as it did there.
If the failure was in the first step, the optimizer has not allocated its state yet. It allocates the state at the end
of that step, and all later steps retain it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.calibration.aligned import aligned
from memdiag.allocator.workload import Workload
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.reach import reach_of
from memdiag.trace.recording import Optimizer
from memdiag.trace.table import Array

EARLIER_STEP, OPTIMIZER_STATE = "earlier_step", "optimizer_state"
_MOST_STEPS_BACK = 8
_ALIKE = 0.95  # fraction of the failed step's requests that must also be in the earlier step
_PARAMETER, _GRADIENT, _STATE = (schema.CATEGORIES.index(name) for name in ("parameter", "gradient", "optimizer_state"))
_BACKWARD = schema.PHASES.index("backward")
_OF_TENSORS = (w.FREE, w.FREE_REQUESTED, w.FREE_COMPLETED, w.RECORD_STREAM)
_ENDS = (w.FREE, w.FREE_COMPLETED)
_ASSUMED = "AdamW"


@dataclass(frozen=True)
class Continuation:
    """A recording up to its first failed request, and the requests that probably follow.

    Attributes:
        workload: All of these calls.
        basis: EARLIER_STEP or OPTIMIZER_STATE.
        failed_call: The call that failed in the recording.
        step: The earlier step; -1 with OPTIMIZER_STATE.
        optimizer: Class of the optimizer; "" with EARLIER_STEP.
        is_optimizer_assumed: Whether the optimizer is assumed, because the recording does not name it.
        state_bytes: Bytes of state that were not allocated yet.
    """

    workload: Workload
    basis: str
    failed_call: int
    step: int = -1
    optimizer: str = ""
    is_optimizer_assumed: bool = False
    state_bytes: int = 0


def continuation_of(trace: Trace, device: DeviceTrace, workload: Workload) -> Continuation | None:
    """Returns the probable requests after the first failed one; None without a failure or a basis for an estimate."""
    reach = reach_of(trace, device)
    failed = np.flatnonzero(
        (workload.op == w.ALLOC) & (workload.tensor >= len(device.tensors)) & (workload.row == reach.failed_at)
    )
    if reach.failed_at < 0 or not len(failed) or reach.step < 0:
        return None
    call = int(failed[0])
    return _like_earlier_step(
        device, workload, trace.layout.round_size(workload.size), call, reach.step
    ) or _with_state(trace, device, workload, call, reach.step)


# ------------------------------------------------------------------------------------------------------ an earlier step


@dataclass
class _AppendedCalls:
    """Calls that are appended to those of a recording."""

    workload: Workload
    number: int  # number of the next tensor
    added: list[tuple[int, int, int]] = field(default_factory=list)  # similar recorded call, op, tensor
    freed: set[int] = field(default_factory=set)

    def repeat(self, calls: range, mine: dict[int, int], before: dict[int, int], once: set[int]) -> None:
        """Adds calls like those of an earlier step.

        Args:
            calls: The calls of the earlier step.
            mine: Maps tensors of the earlier step to the corresponding tensors of this step; extended.
            before: Maps tensors of the step before the earlier one to those of the step before this one.
            once: Tensors that are allocated once, and not in each step.
        """
        work = self.workload
        for call in calls:
            op, tensor = int(work.op[call]), int(work.tensor[call])
            if op == w.ALLOC and tensor not in once:
                mine[tensor] = self.number
                self.added.append((call, op, self.number))
                self.number += 1
            elif op in _OF_TENSORS:
                here = mine.get(tensor, before.get(tensor, -1))
                if here >= 0 and here not in self.freed:
                    self.added.append((call, op, here))
                    if op in _ENDS:
                        self.freed.add(here)
            elif op == w.EMPTY_CACHE:
                self.added.append((call, op, -1))

    def after(self, call: int) -> Workload:
        """Returns the recorded calls up to ``call``, followed by the added ones."""
        work, like = self.workload, np.array([each[0] for each in self.added], np.int64)
        columns: dict[str, Any] = {
            name: np.concatenate((getattr(work, name)[: call + 1], getattr(work, name)[like]))
            for name in ("op", "size", "stream", "pool")
        }
        tensor = np.concatenate(
            (work.tensor[: call + 1], np.array([each[2] for each in self.added], work.tensor.dtype))
        )
        row = np.concatenate((work.row[: call + 1], np.full(len(like), work.row[call], work.row.dtype)))
        return replace(work, **columns, tensor=tensor, row=row, num_tensors=self.number)


def _like_earlier_step(
    device: DeviceTrace, workload: Workload, sizes: Array, failed: int, step: int
) -> Continuation | None:
    """Continues like the last complete step that made almost the same requests up to this point."""
    steps = np.where(workload.row >= 0, device.events.step[np.maximum(workload.row, 0)], -1)[: failed + 1]
    asks = np.flatnonzero(workload.op[: failed + 1] == w.ALLOC)
    of_step = {number: asks[steps[asks] == number] for number in range(max(step - _MOST_STEPS_BACK - 1, 0), step + 1)}
    here = of_step[step]
    first = int(steps[steps >= 0].min(initial=step))
    for number in range(step - 1, max(step - _MOST_STEPS_BACK, first) - 1, -1):
        before = of_step.get(number - 1, here[:0]) if number > first else here[:0]
        once = _made_once(workload, sizes, failed, of_step[number], before)
        there = of_step[number][~np.isin(workload.tensor[of_step[number]], list(once))]
        theirs, ours = aligned(workload, sizes, there, here)
        if not len(ours) or ours[-1] != failed or len(ours) < _ALIKE * len(here):
            continue
        mine = _tensors(workload, theirs, ours)
        earlier = _tensors(workload, *aligned(workload, sizes, before, of_step[step - 1]))
        calls = np.flatnonzero(steps == number)
        added = _AppendedCalls(workload, workload.num_tensors, freed=_freed(workload, failed))
        added.repeat(range(int(theirs[-1]) + 1, int(calls[-1]) + 1), mine, earlier, once)
        if len(before):  # adds one more step after this one
            places = {
                old: mine[new]
                for old, new in _tensors(workload, *aligned(workload, sizes, before, there)).items()
                if new in mine
            }
            added.repeat(range(int(calls[0]), int(calls[-1]) + 1), {}, places, once)
        return Continuation(added.after(failed), EARLIER_STEP, failed, step=number)
    return None


def _tensors(workload: Workload, one: Array, other: Array) -> dict[int, int]:
    """Returns a map from tensors of one step to the corresponding tensors of another."""
    return dict(zip(workload.tensor[one].tolist(), workload.tensor[other].tolist(), strict=True))


def _freed(workload: Workload, until: int) -> set[int]:
    ends = np.isin(workload.op[: until + 1], _ENDS)
    return set(workload.tensor[: until + 1][ends].tolist())


def _made_once(workload: Workload, sizes: Array, failed: int, there: Array, before: Array) -> set[int]:
    """Returns tensors of a step that are live at the failure and were allocated only once.

    If the corresponding tensor of the step before was freed, every step allocates such a tensor.
    """
    freed = _freed(workload, failed)
    alive = {tensor for tensor in workload.tensor[there].tolist() if tensor not in freed}
    again = {new for old, new in _tensors(workload, *aligned(workload, sizes, before, there)).items() if old in freed}
    return alive - again


# --------------------------------------------------------------------------------------------------- the first step


def _with_state(trace: Trace, device: DeviceTrace, workload: Workload, failed: int, step: int) -> Continuation | None:
    """Adds the state that the optimizer will have allocated when the next step reaches this point."""
    tensors, at = device.tensors, int(workload.row[failed])
    steps = device.events.step[:at]
    if step > int(steps[steps >= 0].min(initial=step)) or bool((tensors.category == _STATE).any()):
        return None
    live = device.live(at - 1)
    parameters = live[tensors.category[live] == _PARAMETER]
    known = trace.recorded.ended.optimizers if trace.recorded is not None else ()
    if not len(parameters) or any(each.states_per_parameter is None for each in known):
        return None
    is_trained = bool((device.events.phase[:at] == _BACKWARD).any()) or bool(
        (tensors.category[live] == _GRADIENT).any()
    )
    if not known and not is_trained:
        return None
    sizes = tensors.requested_bytes[parameters]
    optimizers = known or (Optimizer(_ASSUMED, int(sizes.sum()), 0, frozenset()),)
    missing = [each for optimizer in optimizers for each in _missing(optimizer, sizes)]
    if not missing:
        return None
    stream, pool = int(workload.stream[failed]), int(workload.pool[failed])
    count, last = len(missing), workload.num_tensors
    more = {"op": w.ALLOC, "stream": stream, "pool": pool, "row": at}
    columns: dict[str, Any] = {
        name: np.concatenate(
            (getattr(workload, name)[: failed + 1], np.full(count, value, getattr(workload, name).dtype))
        )
        for name, value in more.items()
    }
    size = np.concatenate((workload.size[: failed + 1], np.array(missing, workload.size.dtype)))
    tensor = np.concatenate((workload.tensor[: failed + 1], np.arange(last, last + count, dtype=workload.tensor.dtype)))
    longer = replace(workload, **columns, size=size, tensor=tensor, num_tensors=last + count)
    names = ", ".join(dict.fromkeys(optimizer.name for optimizer in optimizers))
    return Continuation(
        longer, OPTIMIZER_STATE, failed, optimizer=names, is_optimizer_assumed=not known, state_bytes=int(sum(missing))
    )


def _missing(optimizer: Optimizer, sizes: Array) -> list[int]:
    """Returns the sizes of the state that an optimizer has not allocated yet, for its parameters."""
    mine = sizes[: int(np.searchsorted(np.cumsum(sizes), optimizer.parameter_bytes)) + 1]
    sizes_left: list[int] = mine[optimizer.num_states :].tolist()
    return sizes_left * (optimizer.states_per_parameter or 0)
