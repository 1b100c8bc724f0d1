"""What ``memdiag record`` does when the program has ended: finishes the files of the run, and says on one screen what they show.

Everything comes from the files: the program's streams are never read. An empty recording is explained as far as its processes left
word of themselves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdiag.cli.talk import busy, say
from memdiag.errors import MemdiagError
from memdiag.quoting import file_argument
from memdiag.units import format_bytes, format_count, plural

if TYPE_CHECKING:
    from memdiag.findings import DeviceReport, Report
    from memdiag.oom.model import OomReport
    from memdiag.recorder.launch import Ended
    from memdiag.recorder.run_folder import RunFolder
    from memdiag.trace.model import Trace

LARGEST = 512 << 20  # bytes of a trace that is looked at unasked: about ten seconds
MOST_ROWS = 8
_PARTS = ("rounding", "pending", "stranded", "foreign", "cache")
_SENT_AWAY = frozenset(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))


@dataclass(frozen=True)
class Run:
    """What a run has left.

    Attributes:
        folder: Its folder.
        recorded: Processes with a trace, in order of rank: what they said of themselves, "trace" and "bytes".
        processes: All processes that used torch, recorded or not.
        single: The trace under its short name; None: there is none.
        nested: Folders of ``memdiag record`` commands inside the command.
        any_python: Whether any Python process loaded the recorder's bootstrap.
        phantom: Whether it ran on a phantom device.
    """

    folder: RunFolder
    recorded: tuple[dict[str, Any], ...]
    processes: tuple[dict[str, Any], ...]
    single: str | None
    nested: tuple[str, ...]
    any_python: bool
    phantom: bool = False


def finish(folder: RunFolder, manifest: dict[str, Any], ended: Ended) -> Run:
    """Collects what the processes left, writes the manifest and the short name of the trace."""
    from memdiag.recorder import run_folder
    from memdiag.redaction import is_on

    if is_on():
        from memdiag.sources.redacted_file import redact_run

        redact_run(folder.path)
    processes, nested = _presence(folder.path)
    recorded = run_folder.statuses(folder.path)
    for status in recorded:
        status.update({key: value for key, value in _of(processes, status).items() if key not in status})
    single = None
    if folder.single and len(recorded) == 1 and len(run_folder.traces(folder.path)) == 1:
        single = run_folder.leave_single(recorded[0]["trace"], folder.single)
    marker = Path(folder.path, ".python")
    any_python = marker.exists()
    marker.unlink(missing_ok=True)
    _take_claims_away(folder.path)
    versions = {name: value for name in ("torch_version", "python_version") if (value := _first(processes, name))}
    manifest.update({
        "status": "ended", "end": time.time(), "seconds": ended.seconds, "exit_status": ended.exit_code,
        "signal": signal.Signals(-ended.status).name if ended.status < 0 else None,
        "devices": _first(processes, "devices") or [], "versions": {**manifest["versions"], **versions},
        "ranks": [_relative(status, folder.path) for status in recorded], "processes": processes, "nested": nested,
    })  # fmt: skip
    if is_on():
        from memdiag.sources.redacted_file import redact_manifest, redact_words

        manifest = redact_manifest(manifest)
        redact_words(folder.path)
    run_folder.write_manifest(folder, manifest)
    return Run(folder, tuple(recorded), tuple(processes), single, tuple(nested), any_python, bool(manifest.get("phantom")))


def _take_claims_away(folder: str) -> None:
    """Removes the marks by which processes have shared out the ranks among themselves."""
    from memdiag.recorder.files import CLAIM

    for path in Path(folder).glob(CLAIM.format("*")):
        with contextlib.suppress(OSError):
            path.unlink()


def _presence(folder: str) -> tuple[list[dict[str, Any]], list[str]]:
    """What processes left of themselves; takes it away, since the manifest has it now."""
    from memdiag.recorder import presence
    from memdiag.recorder.run_folder import read_json

    inside = Path(folder, presence.FOLDER)
    found = [content for path in sorted(inside.glob("*.json")) if (content := read_json(str(path))) is not None]
    for path in inside.glob("*.json"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        inside.rmdir()
    nested = [str(content["nested"]) for content in found if "nested" in content]
    processes = [content for content in found if "nested" not in content and not content.get("data_worker")]
    return sorted(processes, key=lambda process: process.get("began") or 0), nested


def _of(processes: list[dict[str, Any]], status: dict[str, Any]) -> dict[str, Any]:
    return next((process for process in processes if process.get("pid") == status.get("pid")), {})


def _first(processes: list[dict[str, Any]], name: str) -> Any:
    return next((process[name] for process in processes if process.get(name)), None)


def _relative(status: dict[str, Any], folder: str) -> dict[str, Any]:
    return {**status, "trace": os.path.relpath(status["trace"], folder)}


# ------------------------------------------------------------------------------------------------------------- the summary


def tell(run: Run, ended: Ended, before: str) -> None:
    """Says what was recorded, or why nothing was."""
    if not run.recorded:
        _tell_why_not(run, before)
        return
    steps = max((status.get("steps") or 0 for status in run.recorded), default=0)
    say("")
    say(f"memdiag: recorded {plural(len(run.recorded), 'process', 'processes')}, {plural(steps, 'training step')}, {_took(run, ended)}")
    chosen = _chosen(run)
    if not _SENT_AWAY.intersection(ended.signals):  # whoever sent these wants us gone
        _tell_memory(run, chosen, ended)
    for warning in dict.fromkeys(warning for status in run.recorded for warning in status.get("said") or ()):
        say(f"  note       {warning}")
    _tell_files(run, chosen)


def _took(run: Run, ended: Ended) -> str:
    """How long it took, and how much of that was ours."""
    slowest = max(run.recorded, key=lambda status: _seconds(status, "seconds_in_marks") + _seconds(status, "seconds_in_dumps"))
    marks, dumps = _seconds(slowest, "seconds_in_marks"), _seconds(slowest, "seconds_in_dumps")
    return f"in {ended.seconds:.1f} s, of which measured for memdiag: {marks:.2f} s in marks and names, {dumps:.2f} s in writing"


def _seconds(status: dict[str, Any], name: str) -> float:
    value = status.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _chosen(run: Run) -> dict[str, Any]:
    """The process to speak of: the one that ran out of memory first, else rank 0; where there are no ranks, the one that did most."""
    failed = [status for status in run.recorded if status.get("ooms")]
    if failed:
        return min(failed, key=lambda status: status["ooms"][0].get("time") or 0)
    if any(status.get("rank") is not None for status in run.recorded):
        return run.recorded[0]
    return max(run.recorded, key=_num_events)


def _num_events(status: dict[str, Any]) -> int:
    return sum(file.get("events") or 0 for file in (status.get("files") or {}).values())


def _tell_memory(run: Run, chosen: dict[str, Any], ended: Ended) -> None:
    """Says what the trace shows; for a program that died of an out-of-memory error, that error's report."""
    from memdiag.recorder.run_folder import shown

    path = chosen["trace"]
    size = chosen.get("bytes") or 0
    message = chosen.get("exception") or ""
    if size > LARGEST:
        say(f"  memory     not looked at: the trace has {format_bytes(size)}; memdiag analyze does")
        return
    from memdiag.cli.loading import read_trace

    try:
        trace = read_trace(Path(path), "memdiag: ")
        with busy(f"memdiag: diagnosing {trace.num_events:,} events …"):
            report = _report(trace)
    except MemdiagError as error:
        say(f"  memory     {error.message}; {error.hint}")
        return
    if len(run.recorded) > 1:
        say(f"  memory     of {Path(path).name}:")
    for device in report.devices:
        _tell_device(report, device)
    _tell_verdict(report)
    is_memory = bool(ended.status and (chosen.get("ooms") or message)) and _tell_oom(trace, message, shown(run.single or path))
    if ended.status > 0 and not is_memory:
        _tell_steered(trace)


def _tell_verdict(report: Report) -> None:
    """Prints the verdict card."""
    from memdiag.render import card

    verdict = card.verdict_of(report)
    say(f"  diagnosis  {verdict.happened}")
    for row in card.rows(verdict):
        say(f"  {row.label:<10} {row.text}")
        if row.command:
            say(f"             {row.command}")


def _tell_steered(trace: Trace) -> None:
    """Says of a program that failed on a phantom device what may have led it there: values that nobody computed, what is not imitated."""
    found = [note for note in trace.notes if note.code in {"MD927", "MD928"}]
    for note in found:
        say(f"  note       it ended with an error, on a device that is not there: {note.text}")
    if any(note.code == "MD927" for note in found):
        say("             --values ones (or finite, random) makes up others, --compute small computes small ones: memdiag explain phantom")


def _report(trace: Trace) -> Report:
    from memdiag.analyzers.report import build_report

    return build_report(trace, top=MOST_ROWS)


def _tell_device(report: Report, device: DeviceReport) -> None:
    peak = device.moment
    if peak is None or not (peak.reserved_bytes or peak.allocated_bytes):
        return
    where = [f"step {peak.step}"] if peak.step is not None and peak.step >= 0 else []
    where = ([peak.phase] if peak.phase else []) + where
    name = f"{report.source.backend or 'device'}:{device.device}"
    place = f", in {' of '.join(where)}" if where else ""
    reserved = f"{format_bytes(peak.reserved_bytes)} reserved, " if peak.reserved_bytes is not None else ""
    title = "at failure" if peak.kind == "oom" else "peak"
    say(f"  {title:<10} {reserved}{format_bytes(peak.allocated_bytes)} allocated ({name}{place})")
    parts = {name: getattr(device.fragmentation, f"{name}_bytes") for name in _PARTS}
    if None not in parts.values() and any(parts.values()):
        listed = ", ".join(f"{name} {format_bytes(value)}" for name, value in parts.items() if value)
        say(f"  unused     {format_bytes(sum(parts.values()))} reserved and not asked for by tensors: {listed}")
    if device.by_category:
        most = sorted(device.by_category.items(), key=lambda item: -item[1])[:5]
        say("  held by    " + ", ".join(f"{name.replace('_', ' ')} {format_bytes(value)}" for name, value in most if value))


def _tell_oom(trace: Trace, message: str, name: str) -> bool:
    """Prints the report of ``memdiag oom``, with what the trace called ``name`` knows of the message; False: it is of something else."""
    import sys

    from memdiag.analyzers.joined import join
    from memdiag.cli.talk import look_of
    from memdiag.oom.read import read_text
    from memdiag.registry import OOM_RENDERERS, resolve

    found: OomReport | None = read_text(message) if message else None
    if found is not None and found.messages:
        found = replace(found, sources=("the exception that ended the program",))
    report = replace(join(found, trace), trace=name)
    if not report.messages or sys.stderr is None:
        return bool(report.messages)
    say("")
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(resolve(OOM_RENDERERS["terminal"])(report, look_of(sys.stderr), every=False, top=3))
        sys.stderr.flush()
    say("")
    return True


def _tell_files(run: Run, chosen: dict[str, Any]) -> None:
    from memdiag.recorder.run_folder import TRACE, shown

    for status in run.recorded[:MOST_ROWS]:
        facts = [format_bytes(status.get("bytes"))]
        events = sum(file.get("events") or 0 for file in (status.get("files") or {}).values())
        facts += [f"{format_count(events)} events"] if events else []
        facts += [f"written at: {status['reason']}"] if status.get("reason") not in {None, "exit"} else []
        say(f"  file       {shown(status['trace'])} ({', '.join(facts)})")
    if len(run.recorded) > MOST_ROWS:
        say(f"  …          and {len(run.recorded) - MOST_ROWS} more in {run.folder.shown}")
    if run.single is not None:
        wanted = run.folder.single
        why = f": {shown(wanted)} is not memdiag's, and stays" if run.single != wanted else ""
        say(f"  file       {shown(run.single)}, the same{why}")
    elif len(run.recorded) > 1 and Path(run.folder.single).name != TRACE:
        say(f"  note       {shown(run.folder.single)} was not written: there is more than one process")
    for folder in run.nested:
        say(f"  note       another memdiag record ran inside: see {shown(folder)}")
    name = file_argument(shown(run.single or (chosen["trace"] if len(run.recorded) > 1 else run.folder.path)))
    say(f"  next       memdiag analyze {name}")
    failed = {oom.get("backend") for oom in chosen.get("ooms") or ()}
    if failed & {"cuda", "npu"} and not run.phantom:
        say("             memdiag record --phantom DEVICE -- … tries a change on a device that is not there (memdiag devices)")


# ------------------------------------------------------------------------------------------------------- an empty recording


def _tell_why_not(run: Run, before: str) -> None:
    from memdiag.recorder.run_folder import shown

    if run.nested:
        say(f"memdiag: recorded by the memdiag record inside the command: see {', '.join(map(shown, run.nested))}")
        return
    reasons = why_not(run)
    say(f"memdiag: nothing was recorded: {before or reasons[0]}")
    for reason in reasons[1:]:
        say(f"  {reason}")
    say("  memdiag doctor shows what can be recorded on this machine")


def why_not(run: Run) -> list[str]:
    """Returns the reasons for an empty recording, the first the most telling."""
    if not run.processes:
        if run.any_python:
            return ["no Python process of the command imported torch"]
        return [
            "no Python process below the command loaded the recorder",
            "either there was none, or it ran with -I, -E or -S, or with an environment of its own (sudo, ssh, docker)",
        ]
    reasons: list[str] = []
    for process in run.processes:
        reasons += process.get("said") or ()
        if process.get("ended") is None:
            reasons.append(
                f"process {process.get('pid')} used torch and ended without Python's end (os._exit, a signal, a crash): "
                "--every N writes files on the way"
            )
        elif process.get("said"):
            continue
        elif process.get("initialised"):
            reasons.append(f"process {process.get('pid')} initialised {', '.join(process['initialised'])} and allocated nothing there")
        else:
            reasons.append(f"process {process.get('pid')} imported torch and used no device that is recorded")
    return list(dict.fromkeys(reasons))[:MOST_ROWS]
