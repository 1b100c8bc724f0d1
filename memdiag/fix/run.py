"""``memdiag fix``: records a program, chooses remedies, runs the program with them, and compares."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdiag.allocator.subject import Subject, recorded_peak
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.errors import MemdiagError
from memdiag.fix.advice import advise
from memdiag.fix.base import Proposal
from memdiag.fix.case import FixCase, Peaks
from memdiag.fix.choose import FixPlan, choose, with_whole_budget
from memdiag.fix.losses import compare_losses, compare_times
from memdiag.fix.structure import lines_in
from memdiag.fix.trial import PLENTY, ProgramTrial, as_result, resized, run
from memdiag.fix.undo import find_worse
from memdiag.results.fix import FixPeaks, FixReport, FixStep
from memdiag.runs.listener import SILENT, Listener
from memdiag.runs.outcome import failure_of
from memdiag.runs.recording import Done, Order
from memdiag.runs.values_auto import culprit_of, perform_auto
from memdiag.text import phrase
from memdiag.trace.moments import has_history
from memdiag.trace.schema import OOM

if TYPE_CHECKING:
    from memdiag.runs.rerun import RepeatableRun
    from memdiag.trace.model import Trace

_SPARE = (0.02, 0.04)  # shares of the memory that another plan leaves free after a prediction was too low
_NEAR = 0.05  # share by which a peak may differ from its prediction, if the prediction is the reason for a miss


@dataclass(frozen=True)
class FixOrder:
    """What to fix.

    Attributes:
        order: The command, and how it is recorded.
        budget_bytes: Memory of the card, or None for that of the device.
        unsafe: Whether remedies that change results may be chosen.
        dry_run: Whether to stop after the prediction.
        without: Names of remedies to leave out.
        measures_each: Whether to run the program also with each chosen remedy alone; None: on simulated devices only.
        finds_values: Whether to find values for a simulated device with which the program runs (``--values auto``).
    """

    order: Order
    budget_bytes: int | None
    unsafe: bool = False
    dry_run: bool = False
    without: tuple[str, ...] = ()
    measures_each: bool | None = None
    finds_values: bool = False

    @property
    def runs_each(self) -> bool:
        """Whether to run the program also with each chosen remedy alone."""
        return self.order.phantom is not None if self.measures_each is None else self.measures_each


@dataclass(frozen=True)
class Applied:
    """What makes a program fit.

    Attributes:
        chosen: The remedies.
        variable: Environment variable of the allocator settings.
    """

    chosen: tuple[Proposal, ...]
    variable: str


def fix(
    wanted: FixOrder,
    recorded: Path | None = None,
    listener: Listener = SILENT,
    on_plan: Callable[[FixReport], None] | None = None,
) -> tuple[FixReport, Applied]:
    """Finds remedies, applies them, and measures the result.

    Args:
        wanted: The command and the budget.
        recorded: A trace of the command to start from, or None to record it.
        listener: Receives progress.
        on_plan: Called with the prediction, before the fixed program is run.

    Returns:
        The report, and the chosen remedies.

    Raises:
        MemdiagError: Nothing was recorded, the program fails for another reason than memory, or the budget is unknown.
    """
    order = wanted.order
    device = order.phantom
    with (
        tempfile.TemporaryDirectory(prefix="memdiag-losses-") as before,
        tempfile.TemporaryDirectory(prefix="memdiag-losses-") as after,
        tempfile.TemporaryDirectory(prefix="memdiag-outputs-") as outputs,
        tempfile.TemporaryDirectory(prefix="memdiag-facts-") as facts,
    ):
        if recorded is None:
            base = order if device is None else replace(order, phantom=resized(device, PLENTY))
            instructions = {"losses": before} if device is None else {}
            inside = {**instructions, "outputs": outputs, "facts": facts}
            if wanted.finds_values:
                done, found = _with_values(base, inside, listener)
                order = replace(order, environment={**order.environment, **found})
            else:
                done = run(base, inside, listener)
            recorded = heaviest(done, listener, tried_values=wanted.finds_values)
        case = case_of(recorded, _budget(wanted), listener).knowing(lines_in(Path(outputs)), lines_in(Path(facts)))
        undone: list[FixStep] = []
        plan: FixPlan | None = None
        while True:
            without = [*wanted.without, *(step.name for step in undone)]
            select = partial(choose, unsafe=wanted.unsafe, without=without)
            with listener.busy(phrase("fix.busy")):
                plan = plan or select(case)
            report = _report(wanted, case, plan, recorded, undone)
            applied = Applied(tuple(plan.chosen), AllocatorSettings.of(case.trace).variable)
            if on_plan is not None:
                on_plan(report)
            if wanted.dry_run or not plan.chosen or not plan.predicted.fits:
                return report if plan.predicted.fits else _advised(report, case), applied
            losses = Path(tempfile.mkdtemp(dir=after))
            refused = losses / "refused"
            refused.mkdir()
            trial = ProgramTrial(order, case, applied.variable, listener, losses, refused, Path(outputs))
            report, attempt = trial.measured(report, plan.chosen)
            if report.actual is not None and report.actual.fits:
                if device is None:  # a simulated one computes no losses
                    compared, times = compare_losses(Path(before), losses), compare_times(Path(before), losses)
                    report = replace(report, losses=compared, times=times)
                if wanted.runs_each:
                    report = trial.measured_alone(report, plan.chosen)
                return report, applied
            with listener.busy(phrase("fix.busy")):
                known, case = case.returning, case.knowing(lines_in(Path(outputs)))
                if case.returning - known:  # the recording did not show them
                    plan = None
                    continue
                roomier = _roomier(case, plan, select) if _is_near(report) and not attempt.idle else None
            if roomier is not None:
                plan = roomier
                continue
            worse = find_worse(attempt, plan.chosen, partial(trial.attempt, report))
            if worse is None:
                return _advised(report, case), applied
            step = next(each for each in report.steps if each.name == worse.name)
            undone.append(replace(step, is_chosen=False, is_undone=True))
            plan = None


def _with_values(order: Order, inside: Mapping[str, Any], listener: Listener) -> tuple[Done, dict[str, str]]:
    """Returns the run with values that the program accepts, and the variables that set them."""
    found: dict[str, str] = {}

    def perform(order: Order, listener: Listener) -> Done:
        done, variables = perform_auto(order, listener)
        found.update(variables)
        return done

    return run(order, inside, listener, perform=perform), found


def _is_near(report: FixReport) -> bool:
    """Returns whether the measured peak is about the predicted one: another plan with more to spare may fit."""
    if report.actual is None or not report.predicted.allocated_bytes:
        return False
    if report.actual.allocated_bytes is None:
        return False
    return abs(report.actual.allocated_bytes / report.predicted.allocated_bytes - 1) <= _NEAR


def _roomier(case: FixCase, plan: FixPlan, select: Callable[[FixCase], FixPlan]) -> FixPlan | None:
    """Returns a plan that leaves some memory free and needs less than another one, or None."""
    for share in _SPARE:
        other = select(case.sparing(share))
        if other.predicted.fits and other.predicted.allocated < plan.predicted.allocated:
            return with_whole_budget(case, other)
    return None


def _budget(wanted: FixOrder) -> int | None:
    if wanted.budget_bytes is not None or wanted.order.phantom is None:
        return wanted.budget_bytes
    from memdiag.phantom.profiles import choose as choose_device

    profile = choose_device(wanted.order.phantom)
    return profile.capacity_bytes + profile.context_bytes


def usable_trace(run: RepeatableRun) -> Path | None:
    """Returns the heaviest trace of a recorded run, or None if it must be recorded again to show all requests.

    A run that failed on a simulated device is recorded again with plenty of memory. On a real device, the part before
    the failure is all that is known.
    """
    from memdiag.sources import load

    traces = {path: load(path) for path in run.traces}
    if not traces:
        return None
    failed = any(bool((device.events.action == OOM).any()) for trace in traces.values() for device in trace.devices)
    if failed and run.manifest.get("phantom"):
        return None
    return max(traces, key=lambda path: _peak(traces[path]))


def heaviest(done: Done, listener: Listener, *, tried_values: bool = False) -> Path:
    """Returns the trace of the process with the highest reserved peak.

    Args:
        done: The run.
        listener: Receives progress.
        tried_values: Whether ``--values auto`` was used, which then needs no advice.

    Raises:
        MemdiagError: The run left no trace, or failed for another reason than memory.
    """
    files = [] if done.run is None else [Path(status["trace"]) for status in done.run.recorded]
    if not files and done.ended.status:
        raise MemdiagError(phrase("fix.error.ended", status=str(done.ended.exit_code)), phrase("fix.error.ended.hint"))
    if not files:
        raise MemdiagError(phrase("fix.error.nothing"), phrase("fix.error.nothing.hint", folder=done.folder.shown))
    peaks = {file: _peak(listener.read_trace(file)) for file in files}
    found = max(files, key=lambda file: peaks[file])
    if done.ended.status and not any(status.get("ooms") for status in (done.run.recorded if done.run else ())):
        hint = phrase("fix.error.failed.hint", folder=done.folder.shown)
        if not tried_values and done.run is not None and (culprit := culprit_of(done.run, done.ended)) is not None:
            hint = phrase("fix.error.failed.values.hint", count=culprit.count, place=culprit.where)
        raise MemdiagError(phrase("fix.error.failed", status=str(done.ended.exit_code)), hint)
    return found


def _peak(trace: Trace) -> int:
    return max((int(device.usage.reserved.max(initial=0)) for device in trace.devices), default=0)


def case_of(file: Path, budget: int | None, listener: Listener = SILENT) -> FixCase:
    """Returns a recording prepared for remedies.

    Args:
        file: The trace.
        budget: Memory of the card in bytes, or None for that of the recorded device.
        listener: Receives progress.

    Raises:
        MemdiagError: The trace is empty, has no history or ends at a failed allocation, or the budget is unknown.
    """
    trace = listener.read_trace(file)
    if not trace.devices:
        raise MemdiagError(phrase("fix.error.nothing"), phrase("fix.error.nothing.hint", folder=str(file.parent)))
    device = max(trace.devices, key=lambda each: each.num_events)
    if not has_history(device):
        raise MemdiagError(phrase("fix.error.state", file=str(file)), phrase("fix.error.state.hint"))
    failure = failure_of(trace, device)
    if failure is not None and failure.is_last:
        raise MemdiagError(phrase("fix.error.partial", file=str(file)), phrase("fix.error.partial.hint"))
    budget = budget or device.capacity_bytes
    if budget is None:
        raise MemdiagError(phrase("fix.error.budget"), phrase("fix.error.budget.hint"))
    return FixCase(Subject.of(trace, device), budget)


def _report(wanted: FixOrder, case: FixCase, plan: FixPlan, file: Path, undone: Sequence[FixStep]) -> FixReport:
    chosen = {id(each) for each in plan.chosen}
    steps = [_step(each, peaks, is_chosen=id(each) in chosen) for each, peaks in plan.alone]
    return FixReport(
        command=shlex.join(wanted.order.command),
        device=wanted.order.phantom,
        budget_bytes=case.budget_bytes,
        outside_bytes=case.subject.most_outside,
        trace=str(file),
        # the replay within the budget releases cached blocks: that is no recorded peak
        recorded=FixPeaks(
            recorded_peak(case.device, "reserved") or 0,
            recorded_peak(case.device, "allocated") or 0,
            plan.base.fits,
        ),
        steps=(*undone, *steps),
        predicted=_as_result(plan.predicted),
        actual=None,
        exit_status=None,
        calibration_error_bytes=case.subject.calibration.error_bytes,
        losses=None,
        folder=None,
        written=(),
        refused=tuple(as_result(each) for each in plan.refused),
    )


def _advised(report: FixReport, case: FixCase) -> FixReport:
    return replace(report, advice=advise(case, {step.name for step in report.steps}))


def _step(each: Proposal, alone: Peaks, *, is_chosen: bool) -> FixStep:
    return FixStep(
        each.name,
        each.text,
        each.where,
        each.by_hand,
        each.caveat,
        each.is_safe,
        is_chosen,
        False,
        each.forward_share,
        _as_result(alone),
        each.moved_bytes,
        each.copy_us,
        each.cost,
    )


def _as_result(peaks: Peaks) -> FixPeaks:
    return FixPeaks(peaks.reserved, peaks.allocated, peaks.fits)
