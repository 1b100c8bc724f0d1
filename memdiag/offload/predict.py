"""``--policy offload``: a plan to offload tensors to the host or to disk so that a recorded run fits, and its cost.

The plan is made from live bytes. Then memdiag replays the remaining requests through the allocator, since moving
tensors also changes fragmentation. The automatic strategy lowers its target until the replay fits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from memdiag.allocator.as_trace import Simulated
from memdiag.allocator.engine.start import with_start_allocated
from memdiag.allocator.result import OUT_OF_MEMORY, Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.subject import Subject
from memdiag.allocator.tuning.smallest import smallest_capacity
from memdiag.errors import MemdiagError
from memdiag.offload.choose import ChosenMoves, automatic, forced
from memdiag.offload.clock import Clock
from memdiag.offload.detail import Hooked, Offloading
from memdiag.offload.howto import modules_of, smallest_of
from memdiag.offload.modules import block_of_activation, module_of_activation
from memdiag.offload.passes import Passes
from memdiag.offload.plan import OffloadPlan
from memdiag.offload.report import offloading_of
from memdiag.offload.rewrite import rewrite
from memdiag.offload.schedule import CPU, Moves, schedule
from memdiag.offload.settings import OffloadSettings
from memdiag.offload.windows import Windows, find_windows
from memdiag.results.prediction import Prediction
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.recorded import module_at
from memdiag.trace.table import Array

_LEFT_OVER = (0.0, 0.01, 0.03, 0.07, 0.15, 0.3)  # fractions of the device, by attempt of the automatic strategy
_NO_LIMIT = 1 << 50  # bytes
_BACKWARD = schema.PHASES.index("backward")


class Predict(Protocol):
    """Predicts a replay: ``predict`` of the simulations, a higher-level package."""

    def __call__(
        self, subject: Subject, scenario: Scenario, *, with_min_capacity: bool = ..., with_rest: bool = ...
    ) -> tuple[Prediction, Replay, Simulated]:
        """Returns the prediction for ``scenario``, its replay, and the replay as a trace."""


def predict_offload(
    subject: Subject,
    scenario: Scenario,
    settings: OffloadSettings,
    predict: Predict,
    *,
    with_min_capacity: bool = False,
) -> tuple[Subject, tuple[Prediction, Replay, Simulated]]:
    """Returns the recording with the moves, and the result: the prediction, its replay, and the replay as a trace.

    Args:
        subject: The recording.
        scenario: The allocator for the remaining requests.
        settings: The requested settings.
        predict: Predicts the replay of the remaining requests.
        with_min_capacity: Whether to search the smallest device for the remaining requests.

    Raises:
        MemdiagError: The trace lacks data that a plan needs.
    """
    beginning, outside = anew(subject).with_outside(0), subject.most_outside
    if scenario.capacity_bytes is not None:  # plans are made for the allocator's room, like --max-device-memory
        scenario = replace(scenario, capacity_bytes=max(scenario.capacity_bytes - outside, 0))
    plan = make_plan(beginning, scenario, settings)
    moved = replace(scenario, capacity_bytes=plan.budget)
    prediction, replay, simulated = predict(plan.subject, moved, with_min_capacity=with_min_capacity, with_rest=False)
    peak = subject.comparable_peak
    words: Offloading = offloading_of(
        subject.trace,
        subject.device,
        plan,
        settings,
        _hooked(beginning, scenario, plan),
        missing_bytes=_missing(plan, moved),
        fits_with_host_bytes=_host_needed(plan, beginning, scenario, settings),
    )
    fits = prediction.fits if plan.fits else False
    with_plan = replace(
        prediction,
        policy="offload",
        conf=scenario.conf,
        details=(*prediction.details, replace(words, fits=fits)),
        fits=fits,
        is_recorded=False,
        saved_bytes=None if peak is None else peak - prediction.peak_reserved_bytes,
        capacity_bytes=None if plan.budget is None else plan.budget + outside,
        min_capacity_bytes=None if prediction.min_capacity_bytes is None else prediction.min_capacity_bytes + outside,
    )
    return plan.subject, (with_plan, replay, simulated)


def _missing(plan: OffloadPlan, scenario: Scenario) -> int:
    """Returns the additional device memory that the tensors of a plan that stay there need."""
    if plan.fits or plan.budget is None:
        return 0
    needed = smallest_capacity(lambda size: plan.subject.replay(replace(scenario, capacity_bytes=size), log=False), 0)
    return 0 if needed is None else max(needed - plan.budget, 0)


def _host_needed(plan: OffloadPlan, subject: Subject, scenario: Scenario, settings: OffloadSettings) -> int | None:
    """Returns the host memory with which a run would fit, or None if it fits or host memory is not the limit."""
    if plan.fits:
        return None
    roomy = make_plan(subject, scenario, replace(settings, offload_cpu_size=_NO_LIMIT, cpu_ratio=1.0))
    return roomy.chosen.host_bytes if roomy.fits else None


def anew(subject: Subject) -> Subject:
    """Returns a recording that begins with live tensors as one that allocates them first.

    The cache of another device would differ.
    """
    if not len(subject.workload.start.base):
        return subject
    return replace(subject, workload=with_start_allocated(subject.workload), prepared={})


def make_plan(subject: Subject, scenario: Scenario, settings: OffloadSettings) -> OffloadPlan:
    """Returns the plan for a recording.

    Raises:
        MemdiagError: The trace lacks data that a plan needs.
    """
    device = subject.device
    windows = find_windows(subject.trace, device)
    if not len(windows) and len(Passes.of(device).phase):
        raise MemdiagError(phrase("offload.none-idle"), phrase("offload.none-idle.hint"))
    if not len(windows):
        raise MemdiagError(phrase("offload.unmarked"), phrase("offload.unmarked.hint"))
    load = device.usage.allocated.astype(np.int64)
    is_real = not subject.trace.phantom and subject.trace.backend != "cpu"
    clock = Clock.of(device, settings.step_seconds, is_real=is_real)
    budget = settings.device_bytes(scenario.capacity_bytes)
    bound = int((load - _all_away(windows, len(load))).max(initial=0))
    if not settings.auto_offload:
        chosen = forced(windows, load, clock, settings, _checkpoints(subject, windows))
        changed, missing = _tried(subject, scenario, windows, chosen.moves, budget)
        return OffloadPlan(
            windows, clock, chosen, load, bound, changed, budget, chosen.is_enough and not missing, missing
        )
    if budget is None:
        raise MemdiagError(phrase("offload.no-limit"), phrase("offload.no-limit.hint"))
    best: OffloadPlan | None = None
    must_wait = False
    # The fraction to leave for fragmentation is unknown: start small, then about double it each time.
    for share in _LEFT_OVER:
        target = round(budget * (1 - share))
        chosen = automatic(windows, load, target, clock, settings, must_wait=must_wait)
        must_wait = must_wait or chosen.stall_seconds > 0
        changed, missing = _tried(subject, scenario, windows, chosen.moves, budget)
        plan = OffloadPlan(
            windows, clock, chosen, load, bound, changed, budget, not missing and _has_room(chosen, settings), missing
        )
        if best is None or plan.fits or missing < best.missing:
            best = plan
        if plan.fits or not chosen.is_enough:
            break
    assert best is not None  # noqa: S101 - there is at least one attempt; for the type checker
    return best


def _hooked(subject: Subject, scenario: Scenario, plan: OffloadPlan) -> Hooked | None:
    """Returns the effect of saved-tensor hooks around the plan's modules.

    They are replayed as if copies took no time, since they run in order.
    """
    trace, device, windows = subject.trace, subject.device, plan.windows
    modules, smallest = modules_of(trace, device, plan), smallest_of(plan)
    if not modules:
        return None
    names = device.tensors.name[windows.tensor]
    within = {
        int(name): _is_within(module_of_activation(trace.strings[name]), modules)
        for name in np.unique(names).tolist()
        if name >= 0
    }
    known = np.array([within.get(int(name), False) for name in names], bool)
    rows = np.flatnonzero(windows.is_saved & known & (windows.copy_bytes >= smallest))
    clock = replace(plan.clock, seconds=np.zeros(device.num_events + 1), is_known=False)
    moves = schedule(windows, rows, np.full(len(rows), CPU), clock, OffloadSettings(), on_demand=True)
    changed = replace(subject, workload=rewrite(subject.workload, windows, moves).workload, prepared={})
    replay = changed.replay(replace(scenario, capacity_bytes=None, fraction=None), log=False)
    size = int(windows.copy_bytes[rows].sum()) // plan.clock.num_steps
    peaks = (int(load.max(initial=0)) for load in (replay.reserved, replay.allocated, replay.requested))
    return Hooked(tuple(modules), smallest, size, *peaks)


def _is_within(path: str, modules: list[str]) -> bool:
    return any(path == module or path.startswith(f"{module}.") for module in modules)


def _has_room(chosen: ChosenMoves, settings: OffloadSettings) -> bool:
    return chosen.host_bytes <= settings.host_bytes and chosen.disk_bytes <= settings.offload_disk_size


def _tried(
    subject: Subject, scenario: Scenario, windows: Windows, moves: Moves, budget: int | None
) -> tuple[Subject, int]:
    """Returns the recording with the moves, and the missing device bytes."""
    rewritten = rewrite(subject.workload, windows, moves)
    changed = replace(subject, workload=rewritten.workload, prepared={})
    if budget is None:
        return changed, 0
    replay = changed.replay(replace(scenario, capacity_bytes=budget), log=False)
    failed = np.flatnonzero(replay.status == OUT_OF_MEMORY)
    if not len(failed):
        return changed, 0
    wanted = rewritten.workload.size[failed] + replay.allocated[failed]
    return changed, max(int(wanted.max()) - budget, int(rewritten.workload.size[failed].max()) // 8, 1)


def _all_away(windows: Windows, n: int) -> Array:
    """Returns the idle bytes after each event."""
    change = np.zeros(n + 1, np.int64)
    np.add.at(change, windows.begin, windows.device_bytes)
    np.subtract.at(change, windows.end, windows.device_bytes)
    away: Array = np.cumsum(change[:-1])
    return away


def _checkpoints(subject: Subject, windows: Windows) -> Array:
    """Returns, per window, whether its tensor is the input of a recomputed block, whose code runs again in backward."""
    trace, device = subject.trace, subject.device
    if trace.recorded is None:
        return np.zeros(len(windows), bool)
    running = module_at(trace.recorded, device)[device.events.phase == _BACKWARD]
    again = {block_of_activation(trace.recorded.names[name]) for name in np.unique(running).tolist() if name >= 0} - {
        ""
    }
    names = device.tensors.name[windows.tensor]
    of_name = {
        int(name): block_of_activation(trace.strings[name]) in again for name in np.unique(names).tolist() if name >= 0
    }
    found: Array = windows.is_saved & np.array([of_name.get(int(name), False) for name in names], bool)
    return found
