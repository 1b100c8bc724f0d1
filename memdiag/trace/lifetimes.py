"""How long each tensor lives, measured in phases and steps rather than in events.

Two tensors that both live for a thousand events may differ in kind: an activation that waits for its backward, and a
scratch buffer of one long forward. A *visit* is one stretch of a phase that its thread does not interrupt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.trace import schema
from memdiag.trace.evidence import BACKWARD, FORWARD, OPTIMIZER, SILENT, UNKNOWN, StackEvidence
from memdiag.trace.model import DeviceTrace
from memdiag.trace.phases import EventPhases
from memdiag.trace.table import Array, index_type

# A tensor is temporary if at most this many others are allocated during its life: it is freed within an operation or
# two.
TEMPORARY_ALLOCS = 10
# In a trace with fewer events, lifetimes are not classified: "never freed" would be meaningless there.
FEWEST_EVENTS = 100

(
    _UNKNOWN,
    _PERSISTENT,
    _OPTIMIZER_STATE,
    _SURVIVES_STEP,
    _FORWARD_TO_BACKWARD,
    _WITHIN_STEP,
    _WITHIN_PHASE,
    _TEMPORARY,
) = range(len(schema.LIFETIMES))


@dataclass(frozen=True)
class Lives:
    """Allocation and free of every tensor; one entry per tensor.

    Attributes:
        phase_alloc, phase_free: int8: index into PHASES. For a tensor from before the trace, its stack identifies the
            phase of allocation.
        step_alloc, step_free: int32: step, or -1 if unknown, before the first step, or (of a free) never.
        before: It was live when the trace began.
        kept: It is live when the trace ends, or was freed only because the visit in which it was allocated failed.
        at_exit: It is freed after the last event of forward, backward and the optimizer, as the program ends.
        same_visit: It is freed in the same visit of a known phase in which it was allocated.
        open: It is kept, and was allocated in the last visit, in which memory ran out: its lifetime is unknown.
        next_phase, previous_phase: int8: the phases after and before the visit in which it was allocated.
        previous_step: int32: the step in which the visit before that one ended, or -1.
        num_allocs: Number of other allocations during its life.
        sees_backward: A backward allocates or frees memory during its life.
        last_step: The last step of the trace, or -1 if there are none.
        thread: Number of the thread that allocated it; 0 for the main thread, for autograd's threads, and if unknown.
    """

    phase_alloc: Array
    phase_free: Array
    step_alloc: Array
    step_free: Array
    before: Array
    kept: Array
    at_exit: Array
    same_visit: Array
    open: Array
    next_phase: Array
    previous_phase: Array
    previous_step: Array
    num_allocs: Array
    sees_backward: Array
    last_step: int
    thread: Array

    @property
    def steps_survived(self) -> Array:
        """Number of step ends that each tensor outlives, or -1 if unknown."""
        until = np.where(self.kept, self.last_step, self.step_free)
        return np.where((self.step_alloc >= 0) & (until >= 0), until - self.step_alloc, -1)


def measure(device: DeviceTrace, marks: EventPhases, evidence: StackEvidence) -> Lives:
    """Returns allocation and free of every tensor of a device."""
    tensors, n = device.tensors, device.num_events
    visit, surroundings = _visits(marks, n)
    end = _end(device)
    last_visit = int(visit[end - 1]) if n else 0
    phase, step = np.append(marks.phase, UNKNOWN).astype(np.int8), np.append(marks.step, -1).astype(np.int32)
    before = tensors.alloc_at < 0
    born = np.where(before, n, tensors.alloc_at)
    is_unwound = (tensors.free_requested_at >= end) & (visit[born] == last_visit)
    dies = np.where(is_unwound, n, np.minimum(tensors.free_requested_at, n))
    kept = dies >= n
    allocs = np.zeros(n + 1, index_type(n))
    np.cumsum(device.events.action == schema.ALLOC, out=allocs[:n])
    allocs[n] = allocs[n - 1] if n else 0
    backwards = np.append(0, np.cumsum(marks.phase == BACKWARD))  # before each event
    training = np.flatnonzero(np.isin(marks.phase, (FORWARD, BACKWARD, OPTIMIZER)))
    said = evidence.marker[tensors.stack]
    return Lives(
        phase_alloc=np.where(before, np.where(said < SILENT, said, UNKNOWN), phase[born]).astype(np.int8),
        phase_free=phase[dies],
        step_alloc=step[born],
        step_free=step[dies],
        before=before,
        kept=kept,
        at_exit=~kept & (dies > training[-1] if len(training) else False),
        same_visit=~before & ~kept & (visit[born] == visit[dies]) & (phase[born] != UNKNOWN),
        open=~before & kept & (visit[born] == last_visit) & _ends_in_failure(device, visit[:end]),
        next_phase=surroundings[1][visit[born]],
        previous_phase=surroundings[0][visit[born]],
        previous_step=surroundings[2][visit[born]],
        num_allocs=np.where(before, allocs[dies], allocs[dies] - allocs[born]),
        sees_backward=backwards[dies] > np.where(before, 0, backwards[born]),
        last_step=int(marks.step.max(initial=-1)),
        thread=np.append(np.zeros(n, np.int64) if marks.thread is None else marks.thread, 0)[born],
    )


def _visits(marks: EventPhases, n: int) -> tuple[Array, tuple[Array, Array, Array]]:
    """Returns the visit of every event, and of every visit the phases before and after it, and the step before it.

    The visits of each thread are numbered one after the other. One more event and one more visit stand for
    everything outside the trace.
    """
    order = np.arange(n) if marks.thread is None else np.argsort(marks.thread, kind="stable")
    phase = marks.phase[order]
    thread = np.zeros(n, np.int64) if marks.thread is None else marks.thread[order]
    is_first = np.append(True, (phase[1:] != phase[:-1]) | (thread[1:] != thread[:-1])) if n else np.empty(0, bool)
    visit = np.zeros(n + 1, index_type(n))
    visit[order] = np.cumsum(is_first) - 1
    starts = np.flatnonzero(is_first)
    visit[n] = len(starts)
    same_thread = thread[starts][1:] == thread[starts][:-1]
    before = np.where(same_thread, phase[starts][:-1], UNKNOWN)
    after = np.where(same_thread, phase[starts][1:], UNKNOWN)
    step = np.where(same_thread, marks.step[order[starts[1:] - 1]], -1)
    outer, no_step = ([UNKNOWN, UNKNOWN], [-1, -1]) if n else ([UNKNOWN], [-1])
    return visit, (
        np.concatenate((outer[:1], before, outer[1:])).astype(np.int8),
        np.concatenate((after, outer)).astype(np.int8),
        np.concatenate((no_step[:1], step, no_step[1:])).astype(np.int32),
    )


def _end(device: DeviceTrace) -> int:
    """Returns the number of events until the program ended: all, or those until a failure that only frees follow."""
    actions = device.events.action
    failed = np.flatnonzero(actions == schema.OOM)
    if not len(failed) or (actions[failed[-1] :] == schema.ALLOC).any():
        return len(actions)
    return int(failed[-1]) + 1


def _ends_in_failure(device: DeviceTrace, visit: Array) -> bool:
    """Returns whether memory ran out in the last visit of a phase.

    A trace without such a failure was written after the visit had ended.
    """
    failed = np.flatnonzero(device.events.action == schema.OOM)
    return bool(len(failed)) and bool(visit[failed[-1]] == visit[-1])


def classify(device: DeviceTrace, lives: Lives, category: Array) -> Array:
    """Returns the lifetime (int8, index into LIFETIMES) of every tensor of a device."""
    survived = lives.steps_survived
    brief = ~lives.before & ~lives.kept & (lives.num_allocs <= TEMPORARY_ALLOCS)
    crosses = (
        (lives.phase_alloc != BACKWARD)
        & (lives.phase_free == BACKWARD)
        & ((lives.phase_alloc == FORWARD) | ~lives.before)
    )
    from_start = (
        lives.before
        | (lives.step_alloc < 0) & (lives.last_step >= 0)
        | (category == schema.CATEGORIES.index("workspace"))
    )
    outlives = (survived > 0) | lives.before & (lives.step_free > 0)
    conditions = [
        brief & (lives.same_visit | (lives.phase_alloc == UNKNOWN)),
        lives.same_visit,
        (category == schema.CATEGORIES.index("optimizer_state")) & (lives.kept | outlives),
        from_start & (lives.kept | lives.at_exit) & (device.num_events >= FEWEST_EVENTS),
        outlives,
        crosses,
        ~lives.before & ~lives.kept & (survived == 0),
    ]
    names = [
        _TEMPORARY,
        _WITHIN_PHASE,
        _OPTIMIZER_STATE,
        _PERSISTENT,
        _SURVIVES_STEP,
        _FORWARD_TO_BACKWARD,
        _WITHIN_STEP,
    ]
    return np.select(conditions, names, _UNKNOWN).astype(np.int8)
