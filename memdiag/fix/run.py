"""``memdiag fix``: records a program, chooses remedies, runs the program with them, and compares."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdiag.allocator.subject import Subject, recorded_peak
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.errors import MemdiagError
from memdiag.fix.base import Proposal
from memdiag.fix.case import Case, Peaks
from memdiag.fix.choose import Plan, choose
from memdiag.fix.losses import compare_losses
from memdiag.recorder.fixing import VARIABLE
from memdiag.results.fix import FixPeaks, FixReport, FixStep
from memdiag.runs.listener import SILENT, Listener
from memdiag.runs.outcome import failure_of
from memdiag.runs.recording import Done, Order, perform
from memdiag.text import phrase
from memdiag.trace.schema import OOM

if TYPE_CHECKING:
    from memdiag.runs.rerun import RepeatableRun
    from memdiag.trace.model import Trace

INSIDE = Path(__file__).with_name("inside")
_PLENTY = "capacity=8TiB"  # a recording that never runs out of memory shows all requests


@dataclass(frozen=True)
class FixOrder:
    """What to fix.

    Attributes:
        order: The command, and how it is recorded.
        budget_bytes: Memory of the card, or None for that of the device.
        unsafe: Whether remedies that change results may be chosen.
        dry_run: Whether to stop after the prediction.
    """

    order: Order
    budget_bytes: int | None
    unsafe: bool = False
    dry_run: bool = False


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
    ):
        if recorded is None:
            base = order if device is None else replace(order, phantom=_with(device, _PLENTY))
            recorded = heaviest(_run(base, {"losses": before} if device is None else {}, listener), listener)
        case = case_of(recorded, _budget(wanted), listener)
        with listener.busy(phrase("fix.busy")):
            plan = choose(case, unsafe=wanted.unsafe)
        report = _report(wanted, case, plan, recorded)
        chosen = tuple(plan.chosen)
        variable = AllocatorSettings.of(case.trace).variable
        applied = Applied(chosen, variable)
        if on_plan is not None:
            on_plan(report)
        if wanted.dry_run or not chosen or not plan.predicted.fits:
            return report, applied
        told: dict[str, Any] = {"losses": after} if device is None else {}
        now = order if device is None else replace(order, phantom=_with(device, f"total={case.budget_bytes}"))
        conf = next((each.conf for each in chosen if each.conf), None)
        variables = {} if conf is None else {variable: conf}
        done = _run(now, {**told, **instructions(chosen)}, listener, variables)
        losses = compare_losses(Path(before), Path(after)) if device is None else None
        return replace(_measured(report, done, case, listener), losses=losses), applied


def instructions(chosen: Sequence[Proposal]) -> dict[str, Any]:
    """Returns what the recorder needs to apply remedies in the program (see ``memdiag.recorder.fixing``)."""
    return {"folder": str(INSIDE), "remedies": [[each.inside, dict(each.settings)] for each in chosen if each.inside]}


def _with(device: str, option: str) -> str:
    """Returns a simulated device with another size."""
    kept = [part for part in device.split(",") if part.partition("=")[0].strip() not in {"capacity", "room", "total"}]
    return ",".join([*kept, option])


def _budget(wanted: FixOrder) -> int | None:
    if wanted.budget_bytes is not None or wanted.order.phantom is None:
        return wanted.budget_bytes
    from memdiag.phantom.profiles import choose as choose_device

    profile = choose_device(wanted.order.phantom)
    return profile.capacity_bytes + profile.context_bytes


def _run(order: Order, told: Mapping[str, Any], listener: Listener, variables: Mapping[str, str] | None = None) -> Done:
    environment = {**order.environment, **(variables or {})}
    if told:
        environment[VARIABLE] = json.dumps(told)
    return perform(replace(order, environment=environment, has_short_name=False), listener)


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


def heaviest(done: Done, listener: Listener) -> Path:
    """Returns the trace of the process with the highest reserved peak.

    Raises:
        MemdiagError: The run left no trace, or failed for another reason than memory.
    """
    files = [] if done.run is None else [Path(status["trace"]) for status in done.run.recorded]
    if not files:
        raise MemdiagError(phrase("fix.error.nothing"), phrase("fix.error.nothing.hint", folder=done.folder.shown))
    peaks = {file: _peak(listener.read_trace(file)) for file in files}
    found = max(files, key=lambda file: peaks[file])
    if done.ended.status and not any(status.get("ooms") for status in (done.run.recorded if done.run else ())):
        raise MemdiagError(
            phrase("fix.error.failed", status=str(done.ended.exit_code)),
            phrase("fix.error.failed.hint", folder=done.folder.shown),
        )
    return found


def _peak(trace: Trace) -> int:
    return max((int(device.usage.reserved.max(initial=0)) for device in trace.devices), default=0)


def case_of(file: Path, budget: int | None, listener: Listener = SILENT) -> Case:
    """Returns a recording prepared for remedies.

    Args:
        file: The trace.
        budget: Memory of the card in bytes, or None for that of the recorded device.
        listener: Receives progress.

    Raises:
        MemdiagError: The trace is empty or ends at a failed allocation, or the budget is unknown.
    """
    trace = listener.read_trace(file)
    if not trace.devices:
        raise MemdiagError(phrase("fix.error.nothing"), phrase("fix.error.nothing.hint", folder=str(file.parent)))
    device = max(trace.devices, key=lambda each: each.num_events)
    failure = failure_of(trace, device)
    if failure is not None and failure.is_last:
        raise MemdiagError(phrase("fix.error.partial", file=str(file)), phrase("fix.error.partial.hint"))
    budget = budget or device.capacity_bytes
    if budget is None:
        raise MemdiagError(phrase("fix.error.budget"), phrase("fix.error.budget.hint"))
    return Case(Subject.of(trace, device), budget)


def _report(wanted: FixOrder, case: Case, plan: Plan, file: Path) -> FixReport:
    chosen = {id(each) for each in plan.chosen}
    steps = [_step(each, peaks, is_chosen=id(each) in chosen) for each, peaks in plan.alone]
    return FixReport(
        command=shlex.join(wanted.order.command),
        device=wanted.order.phantom,
        budget_bytes=case.budget_bytes,
        trace=str(file),
        # the replay within the budget releases cached blocks: that is no recorded peak
        recorded=FixPeaks(
            recorded_peak(case.device, "reserved") or 0,
            recorded_peak(case.device, "allocated") or 0,
            plan.base.fits,
        ),
        steps=tuple(steps),
        predicted=_as_result(plan.predicted),
        actual=None,
        exit_status=None,
        calibration_error_bytes=case.subject.calibration.error_bytes,
        losses=None,
        folder=None,
        written=(),
    )


def _step(each: Proposal, alone: Peaks, *, is_chosen: bool) -> FixStep:
    return FixStep(
        each.name,
        each.text,
        each.where,
        each.by_hand,
        each.caveat,
        each.is_safe,
        is_chosen,
        each.forward_share,
        _as_result(alone),
    )


def _as_result(peaks: Peaks) -> FixPeaks:
    return FixPeaks(peaks.reserved, peaks.allocated, peaks.fits)


def _measured(report: FixReport, done: Done, case: Case, listener: Listener) -> FixReport:
    recorded = () if done.run is None else done.run.recorded
    same = [Path(status["trace"]) for status in recorded if Path(status["trace"]).name == Path(report.trace).name]
    actual = None
    if same:
        trace = listener.read_trace(same[0])
        device = next((each for each in trace.devices if each.device == case.device.device), trace.devices[0])
        failed = bool((device.events.action == OOM).any())
        reserved, allocated = (int(device.usage[name].max(initial=0)) for name in ("reserved", "allocated"))
        room = case.budget_bytes - case.subject.most_outside
        actual = FixPeaks(reserved, allocated, done.ended.status == 0 and not failed and reserved <= room)
    return replace(report, actual=actual, exit_status=done.ended.exit_code, folder=done.folder.shown)
