"""The two halves of ``memdiag try``: what is predicted from a recorded run, and what the new run made of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdiag.cli.outcome import Failure, failure_of, outcome_of, words
from memdiag.cli.talk import busy, say, say_row
from memdiag.errors import MemdiagError
from memdiag.text import Phrase, in_language, joined, phrase
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from memdiag.allocator.calibrate import Calibration
    from memdiag.allocator.result import Replay
    from memdiag.analyzers.support.simulation import Subject
    from memdiag.cli.after_run import Run
    from memdiag.cli.recorded_run import Done
    from memdiag.cli.rerun import RecordedRun
    from memdiag.results.outlook import Outlook
    from memdiag.trace.model import DeviceTrace, Trace

RESULT = "try.json"
_SEARCH_SECONDS = 30.0


@dataclass(frozen=True)
class Predicted:
    """What is predicted of one rank.

    Attributes:
        path: Its trace.
        subject: What was recorded, with how far a replay of the recorded settings is that.
        replay: The replay under the settings to try.
        outlook: Whether the run fits with them, as far as that is known.
    """

    path: Path
    subject: Subject
    replay: Replay
    outlook: Outlook


@dataclass(frozen=True)
class Prediction:
    """What is predicted of a run.

    Attributes:
        variable: The environment variable of the settings.
        conf: The settings to try.
        ranks: By rank.
    """

    variable: str
    conf: str
    ranks: tuple[Predicted, ...]


@dataclass(frozen=True)
class Compared:
    """Prediction and outcome of one rank, over the calls that both runs made alike.

    Attributes:
        name: File of the rank.
        num_allocations: Of the common part; ``num_recorded`` of the recorded run, ``num_now`` of the new one.
        recorded, predicted, now: Peaks of reserved bytes over the common part; ``ooms_*`` failed requests in it.
        now_whole: Peak of reserved bytes of the whole new run.
        calibrated: How exactly a replay of the recorded settings reproduces the recording, as a phrase.
        failed_before, failed_now: The last failed allocations; None: none failed.
    """

    name: str
    num_allocations: int
    num_recorded: int
    num_now: int
    recorded: int
    predicted: int
    now: int
    ooms_recorded: int
    ooms_predicted: int
    ooms_now: int
    now_whole: int
    ooms_whole: int
    calibrated: str
    failed_before: Failure | None = None
    failed_now: Failure | None = None

    @property
    def error(self) -> int:
        """Predicted peak - actual one."""
        return self.predicted - self.now


def predict(run: RecordedRun, conf: str | None) -> Prediction:
    """Replays every rank of a recorded run under other settings.

    Args:
        run: What was recorded.
        conf: Settings to try; None: those that ``memdiag tune`` recommends.

    Raises:
        MemdiagError: There is nothing to replay, or the settings are refused.
    """
    from memdiag.analyzers.support.allocator_settings import AllocatorSettings
    from memdiag.analyzers.support.simulation import Subject
    from memdiag.cli.loading import read_trace

    if not run.traces:
        raise MemdiagError(f"{run.folder}: this run has no trace", "record it again: memdiag record -- …")
    loaded = [(path, read_trace(path)) for path in run.traces]
    settings = AllocatorSettings.of(loaded[0][1])
    if not settings.can_change:
        raise MemdiagError(
            f"{loaded[0][0].name} was recorded on {loaded[0][1].backend or 'an unknown device'}, whose allocator has no settings to try",
            "try a run on a CUDA or NPU device, or record on one that is not there: memdiag record --phantom …",
        )
    with busy(phrase("try.busy.predicting")):
        subjects = [Subject.of(trace, max(trace.devices, key=lambda device: device.num_events)) for _, trace in loaded]
    chosen = _best(subjects) if conf is None else conf
    ranks = tuple(_predicted(path, subject, chosen) for path, subject in zip(run.traces, subjects, strict=True))
    return Prediction(settings.variable, chosen, ranks)


def _predicted(path: Path, subject: Subject, conf: str) -> Predicted:
    from memdiag.analyzers.support.outlook import is_failing, outlook

    scenario = replace(subject.recorded, conf=conf)
    made = subject.replay(scenario, log=False)
    return Predicted(path, subject, made, outlook(subject, scenario, fails=is_failing(made)))


def _best(subjects: list[Subject]) -> str:
    """Returns the settings that ``memdiag tune`` recommends."""
    from memdiag.analyzers.support.tuning import tune

    with busy(phrase("try.busy.tuning")):
        found = tune(subjects, seconds=_SEARCH_SECONDS)
    if found.recommended is None:
        raise MemdiagError(f"no better settings to try: {found.verdict}", "memdiag try --conf 'k:v,…' tries those that you name")
    say(f"memdiag: {phrase('try.recommended', conf=found.recommended.conf, why=found.verdict)}")
    return found.recommended.conf


def say_prediction(run: RecordedRun, prediction: Prediction) -> None:
    """Says what will be run, and what is expected of it."""
    from memdiag.render.support.outlook import estimate, past_failure

    phantom = (run.manifest.get("phantom") or {}).get("device")
    say(f"memdiag: {phrase('try.again', command=run.shown)}")
    folder = run.manifest["cwd"]
    say_row(phrase("try.in"), phrase("try.in.phantom", folder=folder, device=phantom) if phantom else folder)
    say_row(phrase("try.with"), f"{prediction.variable}={prediction.conf or phrase('try.with.nothing')}")
    for rank in prediction.ranks:

        def of_rank(text: str, name: str = rank.path.name) -> str:
            return phrase("try.rank", name=name, text=text) if len(prediction.ranks) > 1 else text

        peak, recorded = int(rank.replay.reserved.max(initial=0)), int(rank.subject.device.usage.reserved.max(initial=0))
        failed, ahead = int(rank.replay.ooms.max(initial=0)), rank.outlook
        fate = phrase("try.fails", count=failed) if failed else phrase("try.fits")
        fate = past_failure(ahead) if ahead.fits is None else fate
        predicted = phrase("try.predicted.peak", peak=format_bytes(peak), recorded=format_bytes(recorded), fate=fate)
        say_row(phrase("try.predicted"), of_rank(predicted))
        if ahead.rest is not None:
            say_row("", of_rank(estimate(ahead.rest)))
        say_row("", of_rank(calibrated(rank.subject.calibration)))


def calibrated(calibration: Calibration) -> Phrase:
    """Returns how exactly a replay of the recorded settings reproduces the recording."""
    if calibration.exact is None:
        return phrase("try.uncalibrated")
    if calibration.is_exact:
        return phrase("try.calibrated.exact", exact=calibration.exact, events=calibration.events)
    said = phrase("try.calibrated", exact=calibration.exact, events=calibration.events)
    error = calibration.error_bytes
    return said if error is None else joined((said, phrase("try.calibrated.error", bytes=format_bytes(error))), "; ")


def compare(prediction: Prediction, run: Run) -> list[Compared]:
    """Holds the prediction against what the new run left; ranks that left nothing are not in it."""
    from memdiag.cli.loading import read_trace

    now = {Path(status["trace"]).name: Path(status["trace"]) for status in run.recorded}
    return [_compare(rank, read_trace(now[rank.path.name])) for rank in prediction.ranks if rank.path.name in now]


def _compare(rank: Predicted, trace: Trace) -> Compared:
    from memdiag.allocator.from_trace import described
    from memdiag.allocator.shared_calls import shared_calls
    from memdiag.allocator.workload import ALLOC
    from memdiag.trace import schema

    device = next((each for each in trace.devices if each.device == rank.subject.device.device), trace.devices[0])
    workload, _ = described(trace, device)
    end, end_now = shared_calls(rank.subject.workload, workload, len(rank.subject.device.tensors), rank.subject.trace.layout)
    row = int(rank.subject.workload.row[end - 1]) + 1 if end else 0
    row_now = int(workload.row[end_now - 1]) + 1 if end_now else 0

    def ooms(device: DeviceTrace, until: int) -> int:
        return int((device.events.action[:until] == schema.OOM).sum())

    return Compared(
        name=rank.path.name,
        num_allocations=int((rank.subject.workload.op[:end] == ALLOC).sum()),
        num_recorded=int((rank.subject.workload.op == ALLOC).sum()),
        num_now=int((workload.op == ALLOC).sum()),
        recorded=int(rank.subject.device.usage.reserved[:row].max(initial=0)),
        predicted=int(rank.replay.reserved[:end].max(initial=0)),
        now=int(device.usage.reserved[:row_now].max(initial=0)),
        ooms_recorded=ooms(rank.subject.device, row),
        ooms_predicted=int(rank.replay.ooms[:end].max(initial=0)),
        ooms_now=ooms(device, row_now),
        now_whole=int(device.usage.reserved.max(initial=0)),
        ooms_whole=ooms(device, device.num_events),
        calibrated=calibrated(rank.subject.calibration),
        failed_before=failure_of(rank.subject.trace, rank.subject.device),
        failed_now=failure_of(trace, device),
    )


def say_comparison(compared: list[Compared], prediction: Prediction, done: Done) -> None:
    """Says what came of it, and leaves the numbers in the folder of the new run."""
    from dataclasses import asdict

    from memdiag.recorder.files import write_json

    say("")
    if not compared:
        say(f"memdiag: {phrase('try.nothing')}")
        return
    status = done.ended.exit_code
    for each in compared:
        verdict = words(each.failed_before, each.failed_now, each.now_whole, status)
        say(f"memdiag: {phrase('try.rank', name=each.name, text=verdict) if len(compared) > 1 else verdict}")
    for each in compared:
        settings = f"{prediction.variable}={prediction.conf}"
        several = len(compared) > 1
        say(f"memdiag: {phrase('try.compared.rank' if several else 'try.compared', name=each.name, settings=settings)}")
        _say_one(each)
    say_row(phrase("try.run"), phrase("try.run.ended", status=str(status), folder=done.folder.shown))
    content: dict[str, Any] = {
        "schema_version": 1, "variable": prediction.variable, "conf": prediction.conf, "exit_status": status,
        "ranks": [
            {
                **asdict(each), "calibrated": in_language(each.calibrated, "en"), "error": each.error,
                "outcome": outcome_of(each.failed_before, each.failed_now, status),
            }
            for each in compared
        ],
    }  # fmt: skip
    write_json(str(Path(done.folder.path, RESULT)), content)


def _say_one(each: Compared) -> None:
    from memdiag.render.support.lightpage import LightPage
    from memdiag.render.support.look import Look

    error = "0 B" if not each.error else f"{'+' if each.error > 0 else '-'}{format_bytes(abs(each.error))}"
    counts = (each.ooms_recorded, each.ooms_predicted, each.ooms_now, each.ooms_predicted - each.ooms_now)
    page = LightPage(Look(width=80))
    rows = [
        ["", *(phrase(f"try.head.{head}") for head in ("recorded", "predicted", "measured", "error"))],
        [phrase("simulate.row.peak"), *map(format_bytes, (each.recorded, each.predicted, each.now)), error],
        [phrase("try.failed"), *map(str, counts)],
    ]
    page.grid("lrrrr", rows)
    for line in page.finish().splitlines():
        say(line)
    say(f"  {each.calibrated}")
    if each.num_allocations < each.num_recorded:
        say(f"  {phrase('try.same.part', count=each.num_allocations, recorded=each.num_recorded)}")
    else:
        say(f"  {phrase('try.same.all', count=each.num_allocations)}")
    if each.num_now > each.num_allocations:
        failed = phrase("try.more.failed", count=each.ooms_whole) if each.ooms_whole else ""
        more = phrase("try.more", count=each.num_now - each.num_allocations, peak=format_bytes(each.now_whole))
        say(f"  {joined((more, failed), ', ')}")
