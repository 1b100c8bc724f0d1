"""Chooses the trace to read: the file given, a rank of a run directory, or the newest run in a directory."""

from __future__ import annotations

import re
from collections.abc import Callable
from filecmp import cmp
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.output_file import is_same
from memdiag.text import phrase

_RANK = re.compile(r"rank(\d+)\.pkl")


def silent(_: str) -> None:
    """Drops a line."""


def choose_trace(
    given: Path | None = None,
    rank: int | None = None,
    say: Callable[[str], None] = silent,
    *,
    of_failure: bool = False,
) -> Path:
    """Returns the trace file to read.

    Args:
        given: A file, a run directory (``memdiag-…`` with ``rank0.pkl`` …), or a directory with runs in it; None for
            the current one. Among several runs, the newest of ``trace.pkl`` and ``memdiag-*/rank*.pkl`` is read.
        rank: The rank to read, if the run has it, otherwise the first.
        say: Receives one line with the name of a file that was chosen rather than given.
        of_failure: Prefer the newest run that ran out of memory and, if ``rank`` is None, its first rank that did.

    Raises:
        MemdiagError: The given run has no trace, or no path was given and the current directory contains no run.
    """
    ranks = {} if given is None else ranks_in(given)
    if ranks:
        if of_failure and rank is None:
            rank = next((each for each, path in ranks.items() if _ran_out(path)), None)
        chosen = ranks.get(-1 if rank is None else rank, next(iter(ranks.values())))
        if len(ranks) > 1:
            which = phrase("progress.rank", rank=str(rank)) if rank in ranks else phrase("progress.rank.first")
            say(phrase("progress.rank.reading", file=str(chosen), which=which, count=len(ranks)))
        return chosen
    runs = _runs(given or Path())
    if runs:
        failed = [traces for traces in runs if any(map(_ran_out, traces))] if of_failure else []
        traces = (failed or runs)[0]
        first = next(filter(_ran_out, traces), traces[0]) if failed else traces[0]
        chosen = next((path for path in traces if path.name == f"rank{rank}.pkl"), first)
        where = phrase("progress.newest.here") if given is None else phrase("progress.newest.in", folder=str(given))
        say(phrase("progress.newest.failed" if failed else "progress.newest", file=str(chosen), where=where))
        return chosen
    if given is None:
        raise MemdiagError(
            phrase("errors.no-trace-here"),
            phrase("errors.no-trace-here.hint"),
        )
    _refuse_without_trace(given)
    return given  # even an unreadable file: the source reports why


def _refuse_without_trace(folder: Path) -> None:
    """Raises MemdiagError for the directory of a run that has ended without a trace."""
    from memdiag.recorder.run_folder import MANIFEST, read_json

    run = (read_json(str(folder / MANIFEST)) or {}) if folder.is_dir() else {}
    if run.get("status") != "ended":
        return
    processes = run.get("processes")
    errors = [each.get("exception") for each in processes or () if isinstance(each, dict)]
    error = next((each.partition(":")[0].rpartition(".")[2] for each in errors if isinstance(each, str)), "")
    raise MemdiagError(
        phrase("errors.run-without-trace", folder=str(folder)),
        phrase("errors.run-without-trace.failed", error=error) if error else phrase("errors.run-without-trace.hint"),
    )


def ranks_in(folder: Path) -> dict[int, Path]:
    """Returns the traces of a run directory by rank, in order, or {} if it is not one."""
    try:
        found = {int(match.group(1)): path for path in folder.iterdir() if (match := _RANK.fullmatch(path.name))}
    except OSError:
        return {}
    return dict(sorted(found.items()))


def _runs(folder: Path) -> list[list[Path]]:
    """Returns the traces of each readable run in a folder, the newest run first."""
    try:
        runs = [list(ranks.values()) for run in folder.glob("memdiag-*") if (ranks := ranks_in(run))]
        single = folder / "trace.pkl"
        if single.is_file():
            runs.append([single])
        dated = [(max(path.stat().st_mtime_ns for path in traces), traces) for traces in runs]
    except OSError:
        return []
    return [traces for _, traces in sorted(dated, reverse=True)]


def _ran_out(trace: Path) -> bool:
    """Returns whether a process ran out of memory, as the recorder noted beside its trace."""
    from memdiag.recorder.run_folder import read_json

    status = read_json(str(original_of(trace).with_suffix(".json"))) or {}
    return bool(status.get("ooms"))


def original_of(trace: Path) -> Path:
    """Returns the file in the folder of a run that a trace is a second name or a copy of (trace.pkl), or the trace."""
    from memdiag.recorder.run_folder import MANIFEST

    if (trace.parent / MANIFEST).is_file():
        return trace
    return next((path for path in trace.parent.glob("memdiag-*/rank*.pkl") if _is_copy(path, trace)), trace)


def _is_copy(one: Path, other: Path) -> bool:
    try:
        return is_same(one, other) or cmp(one, other, shallow=False)
    except OSError:
        return False
