"""Summary of a recorded run, from its files.

It explains an empty recording from the status files that the processes left.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdiag.errors import MemdiagError
from memdiag.recorder.process import is_of_code
from memdiag.results.recording import RunMemory, RunSummary
from memdiag.runs.libraries import with_libraries
from memdiag.runs.listener import SILENT, Listener
from memdiag.runs.neighbours import cards_of, with_neighbours
from memdiag.runs.unsupported import unsupported_code
from memdiag.text import phrase
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from memdiag.recorder.launch import ProgramEnd
    from memdiag.results.oom import OomReport
    from memdiag.results.report import Report
    from memdiag.runs.finishing import FinishedRun
    from memdiag.trace.model import Trace

LARGEST = 512 << 20  # bytes of a trace that is read without a request: about ten seconds
MOST_ROWS = 8
_CTRL_C = "builtins.KeyboardInterrupt"
_SENT_AWAY = frozenset(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))


def summarize(run: FinishedRun, ended: ProgramEnd, before: str = "") -> RunSummary:
    """Returns the facts of a run from its status files, without reading its traces.

    Args:
        run: The run.
        ended: How its command ended.
        before: Why nothing could be recorded, if the command shows that, or "".
    """
    from memdiag.recorder.run_folder import TRACE, shown

    wanted = run.folder.single
    recorded = tuple({**status, "name": shown(status["trace"])} for status in run.recorded)
    slowest = max(
        recorded,
        key=lambda status: _seconds(status, "seconds_in_marks") + _seconds(status, "seconds_in_dumps"),
        default={},
    )
    reasons: Sequence[str] = ()
    if not recorded and not run.nested:
        found = why_not(run)
        reasons = [before, *found[1:]] if before else [*host_limit(ended), *found]
    return RunSummary(
        folder=run.folder.shown,
        wanted=shown(wanted) if wanted else "",
        is_wanted_named=bool(wanted) and Path(wanted).name != TRACE,
        single=None if run.single is None else shown(run.single),
        recorded=recorded,
        chosen=_chosen(recorded) if recorded else None,
        steps=max((status.get("steps") or 0 for status in recorded), default=0),
        seconds=ended.seconds,
        marks_seconds=_seconds(slowest, "seconds_in_marks"),
        dumps_seconds=_seconds(slowest, "seconds_in_dumps"),
        is_phantom=run.phantom,
        was_sent_away=bool(_SENT_AWAY.intersection(ended.signals)),
        warnings=tuple(
            dict.fromkeys(
                (*(word for status in recorded for word in status.get("said") or ()), *host_limit(ended), *lost(run))
            )
        ),
        problems=run.problems,
        nested=tuple(map(shown, run.nested)),
        reasons=tuple(reasons),
    )


def with_memory(summary: RunSummary, ended: ProgramEnd, listener: Listener = SILENT) -> RunSummary:
    """Returns a summary with facts from the trace of its chosen process.

    A command that a signal asked to end at once gets no diagnosis: its sender is waiting.

    Args:
        summary: The summary of the status files.
        ended: How the command ended.
        listener: Receives progress.
    """
    if summary.chosen is None or summary.was_sent_away:
        return summary
    cards = cards_of(_ranks(summary.recorded), listener.read_trace)
    return replace(summary, memory=_memory(replace(summary, cards=cards), summary.chosen, ended, listener), cards=cards)


def _ranks(recorded: Sequence[Mapping[str, Any]]) -> dict[int, Path]:
    """Returns the trace of each rank; processes without ranks are numbered."""
    ranks = (status.get("rank") for status in recorded)
    return {
        number if rank is None else rank: Path(status["trace"])
        for number, (rank, status) in enumerate(zip(ranks, recorded, strict=True))
    }


def _memory(summary: RunSummary, chosen: Mapping[str, Any], ended: ProgramEnd, listener: Listener) -> RunMemory:
    path, size = chosen["trace"], chosen.get("bytes") or 0
    if size > LARGEST:
        return RunMemory(too_large_bytes=size)
    try:
        trace = with_libraries(listener.read_trace(Path(path)))
        traces = _ranks(summary.recorded)
        rank = next(rank for rank, each in traces.items() if each == Path(path))
        trace = with_neighbours(trace, rank, summary.cards, traces)
        with listener.busy(f"memdiag: {phrase('record.busy', count=trace.num_events)}"):
            report = _report(trace)
    except MemdiagError as error:
        return RunMemory(unreadable=(error.message, error.hint))
    message = chosen.get("exception") or ""
    oom = (
        _oom(trace, message, summary.single or chosen["name"])
        if ended.status and (chosen.get("ooms") or message)
        else None
    )
    # Ctrl-C in a program that makes steps is no failure, nor is a SIGTERM. Neither may go through memdiag (timeout).
    # A program that makes no steps may wait for a value.
    was_ended = bool(ended.signals) or chosen.get("reason") == "signal" or message.startswith(_CTRL_C)
    was_stopped = was_ended and summary.steps > 0
    if ended.status <= 0 or was_stopped or oom is not None or is_of_code(message):
        return RunMemory(report, oom=oom)
    if code := unsupported_code(message):
        return RunMemory(report, unsupported=code)
    found = [note for note in trace.notes if note.code in {"MD927", "MD928", "MD932"}]
    is_steered = any(note.code == "MD927" for note in found)
    read = chosen.get("synthetic") or {}
    is_auto = read.get("auto") or (chosen.get("assumed_sizes") or {}).get("auto")
    return RunMemory(
        report,
        steered=tuple(note.text for note in found),
        last_synthetic=(str(read.get("values")), str(read["last"])) if is_steered and read.get("last") else None,
        is_steered_by_values=any(note.code != "MD928" for note in found) and not is_auto,
    )


def _report(trace: Trace) -> Report:
    from memdiag.analyzers.report import build_report

    return build_report(trace, top=MOST_ROWS)


def _oom(trace: Trace, message: str, name: str) -> OomReport | None:
    """Returns the report of ``memdiag oom`` on an error, with facts from the trace ``name``; None for other errors."""
    from memdiag.analyzers.support.joined import join
    from memdiag.oom.read import read_text

    found: OomReport | None = read_text(message) if message else None
    if found is not None and found.messages:
        found = replace(found, sources=(phrase("record.exception"),))
    report = replace(join(found, trace), trace=name)
    return report if report.messages else None


def _seconds(status: Mapping[str, Any], name: str) -> float:
    value = status.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _chosen(recorded: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the process to summarise: the first out of memory, else rank 0, else the one with the most events."""
    failed = [status for status in recorded if status.get("ooms")]
    if failed:
        return min(failed, key=lambda status: status["ooms"][0].get("time") or 0)
    if any(status.get("rank") is not None for status in recorded):
        return recorded[0]
    return max(recorded, key=num_events)


def num_events(status: Mapping[str, Any]) -> int:
    """Returns the number of recorded events of a process."""
    return sum(file.get("events") or 0 for file in (status.get("files") or {}).values())


def host_limit(ended: ProgramEnd) -> list[str]:
    """Returns a line if the kernel killed a process at the limit of the cgroup's host memory while the program ran."""
    if ended.host_kills <= 0 or ended.host_limit_bytes is None:
        return []
    return [phrase("record.why.cgroup", limit=format_bytes(ended.host_limit_bytes))]


def lost(run: FinishedRun) -> list[str]:
    """Returns a line for each process that was killed before it wrote a file, beside others that did."""
    written = {status.get("pid") for status in run.recorded}
    killed = [process for process in run.processes if "ended" in process and process["ended"] is None]
    found = [str(process.get("pid")) for process in killed if process.get("pid") not in written]
    return [phrase("record.why.killed", pid=pid) for pid in found[:MOST_ROWS]] if written else []


def why_not(run: FinishedRun) -> list[str]:
    """Returns the reasons for an empty recording, the most likely one first."""
    from memdiag.recorder.run_folder import why_unwritable

    has_warnings = any(process.get("said") for process in run.processes)
    if not has_warnings and (full := why_unwritable(run.folder.path)):
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
        elif exception := process.get("exception"):  # "builtins.TypeError: …"
            kind = exception.partition(":")[0].removeprefix("builtins.")
            reasons.append(phrase("record.why.exception", pid=str(process.get("pid")), exception=kind))
        elif process.get("initialised"):
            devices = ", ".join(process["initialised"])
            reasons.append(phrase("record.why.unused", pid=str(process.get("pid")), devices=devices))
        else:
            reasons.append(phrase("record.why.device", pid=str(process.get("pid"))))
    return list(dict.fromkeys(reasons))[:MOST_ROWS]
