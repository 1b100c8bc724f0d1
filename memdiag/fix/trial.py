"""Runs a program with remedies, on the device or a simulated one of the given size, and measures it."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memdiag.fix.base import Proposal, Refusal
from memdiag.fix.case import FixCase
from memdiag.fix.structure import lines_in, refusals_in
from memdiag.fix.undo import Attempt
from memdiag.recorder.config import FIX_VARIABLE
from memdiag.results.fix import FixPeaks, FixRefusal, FixReport
from memdiag.runs.listener import Listener
from memdiag.runs.outcome import failure_of
from memdiag.runs.recording import Done, Order, perform
from memdiag.text import phrase

INSIDE = Path(__file__).with_name("inside")
# On such a simulated device, no request fails. PyTorch reserves addresses of the whole device for each expandable
# segment, and a process has 128 TiB of addresses.
PLENTY = "capacity=1TiB"


def instructions(chosen: Sequence[Proposal]) -> dict[str, Any]:
    """Returns the recorder's instructions to apply remedies in the program (see ``memdiag.recorder.fixing``)."""
    return {"folder": str(INSIDE), "remedies": [[each.inside, dict(each.settings)] for each in chosen if each.inside]}


def resized(device: str, option: str) -> str:
    """Returns a simulated device with another size."""
    kept = [part for part in device.split(",") if part.partition("=")[0].strip() not in {"capacity", "room", "total"}]
    return ",".join([*kept, option])


def run(
    order: Order,
    work_inside: Mapping[str, Any],
    listener: Listener,
    variables: Mapping[str, str] | None = None,
    perform: Callable[[Order, Listener], Done] = perform,
) -> Done:
    """Runs and records a command.

    Args:
        order: The command.
        work_inside: What the recorder does in the program (see ``memdiag.recorder.fixing``).
        listener: Receives progress.
        variables: Additional environment variables.
        perform: Runs it.

    Raises:
        KeyboardInterrupt: The user interrupted the command.
    """
    environment = {**order.environment, **(variables or {})}
    if work_inside:
        environment[FIX_VARIABLE] = json.dumps(work_inside)
    done = perform(replace(order, environment=environment, has_short_name=False), listener)
    if signal.SIGINT in done.ended.signals or done.ended.status in {-signal.SIGINT, 128 + signal.SIGINT}:
        raise KeyboardInterrupt
    return done


def as_result(refusal: Refusal) -> FixRefusal:
    """Returns a refusal for readers."""
    return FixRefusal(refusal.name, refusal.reason, refusal.where, refusal.instead)


@dataclass(frozen=True)
class ProgramTrial:
    """Runs one program with different remedies.

    Attributes:
        order: The command.
        case: Its recording, and the budget.
        variable: Environment variable of the allocator settings.
        listener: Receives progress.
        losses: Folder for the losses of the run with all chosen remedies.
        refused: Folder for what the parts of remedies refused in that run.
        outputs: Folder for the modules that return several tensors.
    """

    order: Order
    case: FixCase
    variable: str
    listener: Listener
    losses: Path
    refused: Path
    outputs: Path

    def measured(self, report: FixReport, chosen: Sequence[Proposal]) -> tuple[FixReport, Attempt]:
        """Runs the program with the chosen remedies, and returns the report with the measurement."""
        work_inside = {"losses": str(self.losses)} if self.order.phantom is None else {}
        work_inside |= {"refused": str(self.refused), "outputs": str(self.outputs)}
        done, attempt = self._run(chosen, work_inside, Path(report.trace).name)
        exit_code, folder = done.ended.exit_code, done.folder.shown
        names = {each.inside: each.name for each in chosen}
        refused = [replace(each, name=names[each.name]) for each in refusals_in(self.refused)]
        attempt = replace(attempt, idle=frozenset(each.name for each in refused if each.is_whole))
        report = replace(report, refused=(*report.refused, *(as_result(each) for each in refused)))
        return replace(report, actual=attempt.peaks, exit_status=exit_code, folder=folder), attempt

    def attempt(self, report: FixReport, chosen: Sequence[Proposal]) -> Attempt:
        """Runs the program with some remedies; without any, the recording on a real device is its run."""
        if not chosen and self.order.phantom is None:
            return Attempt(report.recorded, ended_well=True)
        return self._run(chosen, {}, Path(report.trace).name)[1]

    def measured_alone(self, report: FixReport, chosen: Sequence[Proposal]) -> FixReport:
        """Runs the program with each chosen remedy by itself, and returns the report with the measurements.

        If the program is predicted not to fit with the remedy, a simulated device has enough memory, so that the
        program does not fail before its peak.
        """
        if len(chosen) == 1:
            step = replace(report.chosen[0], actual_alone=report.actual)
            return replace(report, steps=tuple(step if each.is_chosen else each for each in report.steps))
        steps = {each.name: each for each in report.chosen}
        for each in chosen:
            total = None if steps[each.name].alone.fits or each.pools else PLENTY
            _, attempt = self._run([each], {}, Path(report.trace).name, total)
            # the peak of a run that ended early is not that of the program
            steps[each.name] = replace(steps[each.name], actual_alone=attempt.peaks if attempt.ended_well else None)
        return replace(report, steps=tuple(steps[each.name] if each.is_chosen else each for each in report.steps))

    def _run(
        self, chosen: Sequence[Proposal], work_inside: Mapping[str, Any], name: str, size: str | None = None
    ) -> tuple[Done, Attempt]:
        device = self.order.phantom
        order = self.order
        if device is not None:
            order = replace(order, phantom=resized(device, size or f"total={self.case.budget_bytes}"))
        names = ", ".join(each.name for each in chosen)
        key = "alone" if len(chosen) == 1 else "together" if chosen else "without"
        self.listener.say(phrase(f"fix.run.{key}", names=names))
        conf = next((each.conf for each in chosen if each.conf), None)
        variables = {} if conf is None else {self.variable: conf}
        with tempfile.TemporaryDirectory(prefix="memdiag-measured-") as measured:
            work_inside = {**work_inside, **instructions(chosen), "measured": measured}
            done = run(order, work_inside, self.listener, variables)
            used = [int(line) for line in lines_in(Path(measured))]
        attempt = self._attempt(done, name)
        if used and attempt.peaks is None and any(each.pools for each in chosen):
            attempt = self._attempt_with_pools(done, max(used))
        return done, attempt

    def _attempt_with_pools(self, done: Done, used_bytes: int) -> Attempt:
        """Returns the measurement of a process that PyTorch cannot record, from the used memory of the device."""
        ended_well, outside = done.ended.status == 0, self.case.subject.most_outside
        fits = ended_well and used_bytes <= self.case.budget_bytes
        return Attempt(FixPeaks(max(used_bytes - outside, 0), None, fits), ended_well)

    def _attempt(self, done: Done, name: str) -> Attempt:
        """Returns the measurement of the process whose trace has this name."""
        recorded = () if done.run is None else done.run.recorded
        same = [Path(status["trace"]) for status in recorded if Path(status["trace"]).name == name]
        if not same:
            return Attempt(None, ended_well=False)
        trace = self.listener.read_trace(same[0])
        device = next((each for each in trace.devices if each.device == self.case.device.device), trace.devices[0])
        failure = failure_of(trace, device)
        is_last = failure is not None and failure.is_last
        reserved, allocated = (int(device.usage[name].max(initial=0)) for name in ("reserved", "allocated"))
        ended_well = done.ended.status == 0 and not is_last
        room = self.case.budget_bytes - self.case.subject.most_outside
        peaks = FixPeaks(reserved, allocated, ended_well and reserved <= room)
        return Attempt(peaks, ended_well, None if failure is None else failure.num_allocations)
