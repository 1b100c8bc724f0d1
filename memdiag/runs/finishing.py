"""Finishes the files of a run when its command has ended: redaction, the manifest, and the short name of the trace.

Everything comes from the files: the program's streams are never read.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdiag.errors import MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.recorder.launch import ProgramEnd
    from memdiag.recorder.run_folder import RunFolder


@dataclass(frozen=True)
class FinishedRun:
    """The files of a run that has ended.

    Attributes:
        folder: Its folder.
        recorded: Status files of the processes with a trace, by rank, with "trace" (its path) and "bytes".
        processes: All processes that used torch, recorded or not.
        single: The short name of the trace, or None if there is none.
        nested: Folders of ``memdiag record`` commands inside the command.
        any_python: Whether any Python process loaded the recorder's bootstrap.
        phantom: Whether it ran on a simulated device.
        problems: Files that could not be written or redacted at the end, and why.
    """

    folder: RunFolder
    recorded: tuple[dict[str, Any], ...]
    processes: tuple[dict[str, Any], ...]
    single: str | None
    nested: tuple[str, ...]
    any_python: bool
    phantom: bool = False
    problems: tuple[str, ...] = ()


def finish(folder: RunFolder, manifest: dict[str, Any], ended: ProgramEnd) -> FinishedRun:
    """Collects the status files of the processes, writes the manifest and the short name of the trace.

    Args:
        folder: The folder of the run.
        manifest: The manifest from before the command ran.
        ended: How the command ended.
    """
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
            problems.append(
                phrase("record.no-copy", file=run_folder.shown(folder.single), why=error.strerror or str(error))
            )
    marker = Path(folder.path, ".python")
    any_python = marker.exists()
    marker.unlink(missing_ok=True)
    _take_claims_away(folder.path)
    versions = {name: value for name in ("torch_version", "python_version") if (value := _first(processes, name))}
    manifest.update(
        {
            "status": "ended",
            "end": time.time(),
            "seconds": ended.seconds,
            "exit_status": ended.exit_code,
            "signal": signal.Signals(-ended.status).name if ended.status < 0 else None,
            "devices": _first(processes, "devices") or [],
            "versions": {**manifest["versions"], **versions},
            "ranks": [_relative(status, folder.path) for status in recorded],
            "processes": processes,
            "nested": nested,
        }
    )
    if is_on():
        from memdiag.sources.redacted_file import redact_manifest, redact_words

        manifest = redact_manifest(manifest)
        redact_words(folder.path)
    run_folder.write_manifest(folder, manifest)
    is_phantom = bool(manifest.get("phantom"))
    return FinishedRun(
        folder, tuple(recorded), tuple(processes), single, tuple(nested), any_python, is_phantom, tuple(problems)
    )


def _take_claims_away(folder: str) -> None:
    """Removes the marker files with which processes claimed their ranks."""
    from memdiag.recorder.files import CLAIM

    for path in Path(folder).glob(CLAIM.format("*")):
        with contextlib.suppress(OSError):
            path.unlink()


def _presence(folder: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns and removes the processes' presence files, since the manifest contains them now."""
    from memdiag.recorder import presence
    from memdiag.recorder.run_folder import read_json

    inside = Path(folder, presence.FOLDER)
    found = [content for path in sorted(inside.glob("*.json")) if (content := read_json(str(path))) is not None]
    for path in inside.glob("*.json"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        inside.rmdir()
    nested = [str(content["nested"]) for content in found if "nested" in content]
    waits = {content.get("pid"): content["waited"] for content in found if "waited" in content}
    processes = [
        {**content, **({"waited": waits[content["pid"]]} if content.get("pid") in waits else {})}
        for content in found
        if not {"nested", "waited"} & set(content) and not content.get("data_worker")
    ]
    return sorted(processes, key=lambda process: process.get("began") or 0), nested


def _of(processes: list[dict[str, Any]], status: dict[str, Any]) -> dict[str, Any]:
    return next((process for process in processes if process.get("pid") == status.get("pid")), {})


def _first(processes: list[dict[str, Any]], name: str) -> Any:
    return next((process[name] for process in processes if process.get(name)), None)


def _relative(status: dict[str, Any], folder: str) -> dict[str, Any]:
    return {**status, "trace": os.path.relpath(status["trace"], folder)}
