"""Try other allocator settings on a recorded run: predict the rerun, rerun it, and compare the two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from memdiag.errors import MemdiagError
from memdiag.results.tried import RankComparison, RankForecast, RunForecast, TryReport
from memdiag.runs.listener import SILENT, Listener
from memdiag.runs.outcome import failure_of, outcome_of
from memdiag.text import Phrase, joined, phrase
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from memdiag.allocator.calibration.calibrate import Calibration
    from memdiag.allocator.result import Replay
    from memdiag.allocator.subject import Subject
    from memdiag.runs.recording import Done
    from memdiag.runs.rerun import RepeatableRun
    from memdiag.trace.model import DeviceTrace, Trace

RESULT = "try.json"
_SEARCH_SECONDS = 30.0


@dataclass(frozen=True)
class RankReplay:
    """The replay of one rank under the settings to try.

    Attributes:
        path: Its trace.
        subject: The recording, with the calibration of its replay.
        replay: The replay.
    """

    path: Path
    subject: Subject
    replay: Replay


@dataclass(frozen=True)
class TryPlan:
    """A rerun with its prediction.

    It has ``forecast`` for people, and ``replays`` (by rank) for the comparison with the new run.
    """

    forecast: RunForecast
    replays: tuple[RankReplay, ...]


def predict(run: RepeatableRun, conf: str | None = None, listener: Listener = SILENT) -> TryPlan:
    """Replays every rank of a recorded run under other settings.

    Args:
        run: The recorded run.
        conf: Settings to try, or None for those that ``memdiag tune`` recommends.
        listener: Receives progress.

    Raises:
        MemdiagError: There is nothing to replay, the settings are refused, or no better ones were found.
    """
    from memdiag.allocator.subject import Subject
    from memdiag.analyzers.support.allocator_settings import AllocatorSettings

    if not run.traces:
        raise MemdiagError(
            phrase("errors.run-without-trace", folder=str(run.folder)), phrase("errors.run-without-trace.hint")
        )
    loaded = [(path, listener.read_trace(path)) for path in run.traces]
    settings = AllocatorSettings.of(loaded[0][1])
    if not settings.can_change:
        raise MemdiagError(
            phrase(
                "errors.try-none", name=str(loaded[0][0].name), value=str(loaded[0][1].backend or "an unknown device")
            ),
            phrase("errors.try-none.hint"),
        )
    with listener.busy(phrase("try.busy.predicting")):
        subjects = [Subject.of(trace, max(trace.devices, key=lambda device: device.num_events)) for _, trace in loaded]
    chosen = _best(subjects, listener) if conf is None else conf
    pairs = [_predicted(path, subject, chosen) for path, subject in zip(run.traces, subjects, strict=True)]
    phantom = (run.manifest.get("phantom") or {}).get("device")
    ranks = tuple(forecast for _, forecast in pairs)
    forecast = RunForecast(run.shown, str(run.manifest["cwd"]), phantom, settings.variable, chosen, ranks)
    return TryPlan(forecast, tuple(replay for replay, _ in pairs))


def _predicted(path: Path, subject: Subject, conf: str) -> tuple[RankReplay, RankForecast]:
    from memdiag.runs.outlook import is_failing, outlook

    scenario = replace(subject.recorded, conf=conf)
    made = subject.replay(scenario, log=False)
    forecast = RankForecast(
        name=path.name,
        peak_bytes=int(made.reserved.max(initial=0)),
        recorded_bytes=int(subject.device.usage.reserved.max(initial=0)),
        num_ooms=int(made.ooms.max(initial=0)),
        outlook=outlook(subject, scenario, fails=is_failing(made)),
        calibrated=calibrated(subject.calibration),
    )
    return RankReplay(path, subject, made), forecast


def _best(subjects: list[Subject], listener: Listener) -> str:
    """Returns the settings that ``memdiag tune`` recommends."""
    from memdiag.runs.tuning import tune

    with listener.busy(phrase("try.busy.tuning")):
        found = tune(subjects, seconds=_SEARCH_SECONDS)
    if found.recommended is None:
        raise MemdiagError(
            phrase("errors.try-no-better", verdict=str(found.verdict)), phrase("errors.try-no-better.hint")
        )
    listener.say(f"memdiag: {phrase('try.recommended', conf=found.recommended.conf, why=found.verdict)}")
    return found.recommended.conf


def calibrated(calibration: Calibration) -> Phrase:
    """Returns how exactly a replay of the recorded settings reproduces the recording."""
    if calibration.exact is None:
        return phrase("try.uncalibrated")
    if calibration.is_exact:
        return phrase("try.calibrated.exact", exact=calibration.exact, events=calibration.events)
    said = phrase("try.calibrated", exact=calibration.exact, events=calibration.events)
    error = calibration.error_bytes
    return said if error is None else joined((said, phrase("try.calibrated.error", bytes=format_bytes(error))), "; ")


def compare(plan: TryPlan, done: Done, listener: Listener = SILENT) -> TryReport:
    """Compares a prediction with the traces of the new run, and writes the numbers to try.json in its folder.

    Args:
        plan: The prediction.
        done: The new run.
        listener: Receives progress.

    Returns:
        The comparison, without ranks for which the new run left no trace.

    Raises:
        MemdiagError: A trace of the new run cannot be read.
    """
    from memdiag.recorder.files import write_json
    from memdiag.render.try_run.json import as_dict

    recorded = done.run.recorded if done.run is not None else ()
    now = {Path(status["trace"]).name: Path(status["trace"]) for status in recorded}
    status = done.ended.exit_code
    ranks = tuple(
        _compare(rank, listener.read_trace(now[rank.path.name]), status)
        for rank in plan.replays
        if rank.path.name in now
    )
    report = TryReport(plan.forecast.variable, plan.forecast.conf, status, done.folder.shown, ranks)
    if ranks:
        write_json(str(Path(done.folder.path, RESULT)), as_dict(report))
    return report


def _compare(rank: RankReplay, trace: Trace, status: int) -> RankComparison:
    from memdiag.allocator.calibration.from_trace import described
    from memdiag.allocator.calibration.shared_calls import shared_calls
    from memdiag.allocator.workload import ALLOC
    from memdiag.trace import schema

    device = next((each for each in trace.devices if each.device == rank.subject.device.device), trace.devices[0])
    workload, _ = described(trace, device)
    end, end_now = shared_calls(
        rank.subject.workload, workload, len(rank.subject.device.tensors), rank.subject.trace.layout
    )
    row = int(rank.subject.workload.row[end - 1]) + 1 if end else 0
    row_now = int(workload.row[end_now - 1]) + 1 if end_now else 0

    def ooms(device: DeviceTrace, until: int) -> int:
        return int((device.events.action[:until] == schema.OOM).sum())

    before, now = failure_of(rank.subject.trace, rank.subject.device), failure_of(trace, device)
    return RankComparison(
        name=rank.path.name,
        num_shared_allocations=int((rank.subject.workload.op[:end] == ALLOC).sum()),
        num_recorded_allocations=int((rank.subject.workload.op == ALLOC).sum()),
        num_measured_allocations=int((workload.op == ALLOC).sum()),
        recorded_peak_bytes=int(rank.subject.device.usage.reserved[:row].max(initial=0)),
        predicted_peak_bytes=int(rank.replay.reserved[:end].max(initial=0)),
        measured_peak_bytes=int(device.usage.reserved[:row_now].max(initial=0)),
        num_recorded_ooms=ooms(rank.subject.device, row),
        num_predicted_ooms=int(rank.replay.ooms[:end].max(initial=0)),
        num_measured_ooms=ooms(device, row_now),
        whole_run_peak_bytes=int(device.usage.reserved.max(initial=0)),
        whole_run_num_ooms=ooms(device, device.num_events),
        calibration=calibrated(rank.subject.calibration),
        recorded_failure=before,
        measured_failure=now,
        outcome=outcome_of(before, now, status),
    )
