"""Chooses the trace to read: the file given, a rank of a run directory, or the newest run in a directory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.text import phrase

_RANK = re.compile(r"rank(\d+)\.pkl")


def silent(_: str) -> None:
    """Drops a line."""


def choose_trace(given: Path | None = None, rank: int | None = None, say: Callable[[str], None] = silent) -> Path:
    """Returns the trace file to read.

    Args:
        given: A file, a run directory (``memdiag-…`` with ``rank0.pkl`` …), or a directory with runs in it; None for
            the current one. Among several runs, the newest of ``trace.pkl`` and ``memdiag-*/rank*.pkl`` is read.
        rank: The rank to read, if the run has it, otherwise the first.
        say: Receives one line with the name of a file that was chosen rather than given.

    Raises:
        MemdiagError: No path was given, and the current directory contains no run.
    """
    ranks = {} if given is None else ranks_in(given)
    if ranks:
        chosen = ranks.get(-1 if rank is None else rank, next(iter(ranks.values())))
        if len(ranks) > 1:
            which = phrase("progress.rank", rank=str(rank)) if rank in ranks else phrase("progress.rank.first")
            say(phrase("progress.rank.reading", file=str(chosen), which=which, count=len(ranks)))
        return chosen
    newest = _newest(given or Path(), rank)
    if newest is not None:
        where = phrase("progress.newest.here") if given is None else phrase("progress.newest.in", folder=str(given))
        say(phrase("progress.newest", file=str(newest), where=where))
        return newest
    if given is None:
        raise MemdiagError(
            phrase("errors.no-trace-here"),
            phrase("errors.no-trace-here.hint"),
        )
    return given  # even an unreadable file: the source reports why


def ranks_in(folder: Path) -> dict[int, Path]:
    """Returns the traces of a run directory by rank, in order, or {} if it is not one."""
    try:
        found = {int(match.group(1)): path for path in folder.iterdir() if (match := _RANK.fullmatch(path.name))}
    except OSError:
        return {}
    return dict(sorted(found.items()))


def _newest(folder: Path, rank: int | None) -> Path | None:
    """Returns the trace of the most recent readable run in a folder, or None."""
    try:
        runs = [list(ranks.values()) for run in folder.glob("memdiag-*") if (ranks := ranks_in(run))]
        single = folder / "trace.pkl"
        if single.is_file():
            runs.append([single])
        dated = [(max(path.stat().st_mtime_ns for path in traces), traces) for traces in runs]
    except OSError:
        return None
    if not dated:
        return None
    traces = max(dated)[1]
    return next((path for path in traces if path.name == f"rank{rank}.pkl"), traces[0])
