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

from memdiag import vocabulary
from memdiag.cli.talk import busy, say, say_row
from memdiag.errors import MemdiagError
from memdiag.quoting import file_argument
from memdiag.text import joined, phrase
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from memdiag.recorder.launch import Ended
    from memdiag.recorder.run_folder import RunFolder
    from memdiag.results.oom import OomReport
    from memdiag.results.report import DeviceReport, Report
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
        problems: What could not be written or redacted at the end, and why.
    """

    folder: RunFolder
    recorded: tuple[dict[str, Any], ...]
    processes: tuple[dict[str, Any], ...]
    single: str | None
    nested: tuple[str, ...]
    any_python: bool
    phantom: bool = False
    problems: tuple[str, ...] = ()


def finish(folder: RunFolder, manifest: dict[str, Any], ended: Ended) -> Run:
    """Collects what the processes left, writes the manifest and the short name of the trace."""
    from memdiag.recorder import run_folder
    from memdiag.redaction import is_on

    problems: list[str] = []
    if is_on():
        from memdiag.sources.redacted_file import redact_run

        try:
            redact_run(folder.path)
        except MemdiagError as error:
            problems.append(phrase("record.not-redacted", why=error.message))
    processes, nested = _presence(folder.path)
    recorded = run_folder.statuses(folder.path)
    for status in recorded:
        status.update({key: value for key, value in _of(processes, status).items() if key not in status})
    single = None
    if problems:
        pass  # a trace that is not redacted gets no second name
    elif folder.single and len(recorded) == 1 and len(run_folder.traces(folder.path)) == 1:
        try:
            single = run_folder.leave_single(recorded[0]["trace"], folder.single)
        except OSError as error:
            problems.append(phrase("record.no-copy", file=run_folder.shown(folder.single), why=error.strerror or str(error)))
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
    is_phantom = bool(manifest.get("phantom"))
    return Run(folder, tuple(recorded), tuple(processes), single, tuple(nested), any_python, is_phantom, tuple(problems))


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
    say(f"memdiag: {phrase('record.recorded', processes=len(run.recorded), steps=steps, **_seconds_of(run, ended))}")
    chosen = _chosen(run)
    if not _SENT_AWAY.intersection(ended.signals):  # whoever sent these wants us gone
        _tell_memory(run, chosen, ended)
    for warning in dict.fromkeys(warning for status in run.recorded for warning in status.get("said") or ()):
        say_row(phrase("record.note"), warning)
    _tell_files(run, chosen)


def _seconds_of(run: Run, ended: Ended) -> dict[str, str]:
    """Returns how long the run took, and how much of that was measured for memdiag."""
    slowest = max(run.recorded, key=lambda status: _seconds(status, "seconds_in_marks") + _seconds(status, "seconds_in_dumps"))
    marks, dumps = _seconds(slowest, "seconds_in_marks"), _seconds(slowest, "seconds_in_dumps")
    return {"seconds": f"{ended.seconds:.1f}", "marks": f"{marks:.2f}", "dumps": f"{dumps:.2f}"}


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
        say_row(phrase("record.memory"), phrase("record.memory.large", bytes=format_bytes(size)))
        return
    from memdiag.cli.loading import read_trace

    try:
        trace = read_trace(Path(path), "memdiag: ")
        with busy(f"memdiag: {phrase('record.busy', count=trace.num_events)}"):
            report = _report(trace)
    except MemdiagError as error:
        say_row(phrase("record.memory"), joined((error.message, error.hint), "; "))
        return
    if len(run.recorded) > 1:
        say_row(phrase("record.memory"), phrase("record.memory.of", file=Path(path).name))
    _tell_verdict(report)
    for device in report.devices:
        _tell_device(report, device)
    is_memory = bool(ended.status and (chosen.get("ooms") or message)) and _tell_oom(trace, message, shown(run.single or path))
    if ended.status > 0 and not is_memory:
        _tell_steered(trace)


def _tell_verdict(report: Report) -> None:
    """Prints the verdict card."""
    from memdiag.render.support import card

    verdict = card.verdict_of(report)
    say_row(phrase("record.diagnosis"), verdict.happened)
    for row in card.rows(verdict):
        say_row(row.label, row.text)
        if row.command:
            say_row("", row.command)


def _tell_steered(trace: Trace) -> None:
    """Says of a program that failed on a phantom device what may have led it there: values that nobody computed, what is not imitated."""
    found = [note for note in trace.notes if note.code in {"MD927", "MD928"}]
    for note in found:
        say_row(phrase("record.note"), phrase("record.steered", text=note.text))
    if any(note.code == "MD927" for note in found):
        say_row("", phrase("record.steered.how"))


def _report(trace: Trace) -> Report:
    from memdiag.analyzers.report import build_report

    return build_report(trace, top=MOST_ROWS)


def _tell_device(report: Report, device: DeviceReport) -> None:
    peak = device.moment
    if peak is None or not (peak.reserved_bytes or peak.allocated_bytes):
        return
    name = f"{report.source.backend or phrase('record.device')}:{device.device}"
    step = phrase("places.step", step=str(peak.step)) if peak.step is not None and peak.step >= 0 else ""
    place = joined((name, vocabulary.name("phase", peak.phase) if peak.phase else "", step), ", ")
    reserved = phrase("record.reserved", bytes=format_bytes(peak.reserved_bytes)) if peak.reserved_bytes is not None else ""
    allocated = phrase("record.allocated", bytes=format_bytes(peak.allocated_bytes))
    title = phrase("record.at_failure") if peak.kind == "oom" else phrase("record.peak")
    say_row(title, phrase("record.usage", usage=joined((reserved, allocated), ", "), place=place))
    parts = {name: getattr(device.fragmentation, f"{name}_bytes") for name in _PARTS}
    if None not in parts.values() and any(parts.values()):
        listed = [f"{vocabulary.name('part', name)} {format_bytes(value)}" for name, value in parts.items() if value]
        say_row(phrase("record.unused"), phrase("record.unused.bytes", bytes=format_bytes(sum(parts.values())), parts=joined(listed, ", ")))
    if device.by_category:
        most = sorted(device.by_category.items(), key=lambda item: -item[1])[:5]
        held = [f"{vocabulary.name('category', name)} {format_bytes(value)}" for name, value in most if value]
        say_row(phrase("record.live"), joined(held, ", "))


def _tell_oom(trace: Trace, message: str, name: str) -> bool:
    """Prints the report of ``memdiag oom``, with what the trace called ``name`` knows of the message; False: it is of something else."""
    import sys

    from memdiag.analyzers.support.joined import join
    from memdiag.cli.talk import look_of
    from memdiag.oom.read import read_text
    from memdiag.registry import OOM_RENDERERS, resolve

    found: OomReport | None = read_text(message) if message else None
    if found is not None and found.messages:
        found = replace(found, sources=(phrase("record.exception"),))
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
        facts += [phrase("record.events", count=events)] if events else []
        facts += [phrase("record.written", reason=status["reason"])] if status.get("reason") not in {None, "exit"} else []
        say_row(phrase("record.file"), phrase("record.file.facts", file=shown(status["trace"]), facts=joined(facts, ", ")))
    if len(run.recorded) > MOST_ROWS:
        say_row("…", phrase("record.more", count=len(run.recorded) - MOST_ROWS, folder=run.folder.shown))
    if run.single is not None:
        wanted = run.folder.single
        why = phrase("record.copy.stays", file=shown(wanted)) if run.single != wanted else ""
        say_row(phrase("record.file"), joined((phrase("record.copy", file=shown(run.single)), why), ", "))
    elif len(run.recorded) > 1 and Path(run.folder.single).name != TRACE:
        say_row(phrase("record.note"), phrase("record.several", file=shown(run.folder.single)))
    for problem in run.problems:
        say_row(phrase("record.note"), problem)
    for folder in run.nested:
        say_row(phrase("record.note"), phrase("record.nested", folder=shown(folder)))
    name = file_argument(shown(run.single or (chosen["trace"] if len(run.recorded) > 1 else run.folder.path)))
    say_row(phrase("record.next"), f"memdiag analyze {name}")
    failed = {oom.get("backend") for oom in chosen.get("ooms") or ()}
    if failed & {"cuda", "npu"} and not run.phantom:
        say_row("", phrase("record.next.phantom"))


# ------------------------------------------------------------------------------------------------------- an empty recording


def _tell_why_not(run: Run, before: str) -> None:
    from memdiag.recorder.run_folder import shown

    if run.nested:
        say(f"memdiag: {phrase('record.nested.only', folders=', '.join(map(shown, run.nested)))}")
        return
    reasons = why_not(run)
    say(f"memdiag: {phrase('record.nothing', why=before or reasons[0])}")
    for reason in reasons[1:]:
        say(f"  {reason}")
    say(f"  {phrase('record.doctor')}")


def why_not(run: Run) -> list[str]:
    """Returns the reasons for an empty recording, the first the most telling."""
    from memdiag.recorder.run_folder import why_unwritable

    is_told = any(process.get("said") for process in run.processes)
    if not is_told and (full := why_unwritable(run.folder.path)):
        return [phrase("record.why.disk", folder=run.folder.shown, why=full), phrase("record.why.disk.how")]
    if not run.processes:
        if run.any_python:
            return [phrase("record.why.torch")]
        return [phrase("record.why.recorder"), phrase("record.why.recorder.how")]
    reasons: list[str] = []
    for process in run.processes:
        reasons += process.get("said") or ()
        if process.get("ended") is None:
            reasons.append(phrase("record.why.killed", pid=str(process.get("pid"))))
        elif process.get("said"):
            continue
        elif process.get("initialised"):
            devices = ", ".join(process["initialised"])
            reasons.append(phrase("record.why.unused", pid=str(process.get("pid")), devices=devices))
        else:
            reasons.append(phrase("record.why.device", pid=str(process.get("pid"))))
    return list(dict.fromkeys(reasons))[:MOST_ROWS]
