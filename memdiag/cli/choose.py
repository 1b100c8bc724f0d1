"""Which trace a command works on: the one named, the first rank of a run directory, or the newest run here."""

from __future__ import annotations

import re
from pathlib import Path

from memdiag.cli.talk import say
from memdiag.errors import MemdiagError
from memdiag.units import plural

_RANK = re.compile(r"rank(\d+)\.pkl")


def choose_trace(given: Path | None) -> Path:
    """Returns the trace file to read; what was chosen rather than given is named on stderr.

    Args:
        given: A file, a run directory (``memdiag-…`` with ``rank0.pkl`` …), a directory with such in it, or None: the newest of
            ``./trace.pkl`` and ``./memdiag-*/rank*.pkl``.

    Raises:
        MemdiagError: Nothing was given and no run is here.
    """
    if given is None:
        chosen = _newest(Path())
        say(f"reading {chosen}, the newest run here")
        return chosen
    ranks = _ranks(given)
    if not ranks:
        runs = _runs(given)
        if not runs:
            return given  # also what cannot be read: the source says why
        say(f"reading {max(runs)[1]}, the newest run in {given}")
        return max(runs)[1]
    if len(ranks) > 1:
        say(f"reading {ranks[0]}, the first of {plural(len(ranks), 'rank')} in this run; name a file for another")
    return ranks[0]


def is_same(one: Path, other: Path) -> bool:
    """Whether both name the same existing file."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def _ranks(folder: Path) -> list[Path]:
    """The traces of a run directory, in order of rank; none if it is no directory that can be read."""
    try:
        inside = list(folder.iterdir())
    except OSError:
        return []
    found = [(int(match.group(1)), path) for path in inside if (match := _RANK.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def _runs(folder: Path) -> list[tuple[int, Path]]:
    """When each run in a folder was written, and its first trace."""
    try:
        runs = [ranks for run in folder.glob("memdiag-*") if (ranks := _ranks(run))]
        return [(max(path.stat().st_mtime_ns for path in ranks), ranks[0]) for ranks in runs]
    except OSError:
        return []


def _newest(here: Path) -> Path:
    dated = _runs(here)
    single = here / "trace.pkl"
    if single.is_file():
        dated.append((single.stat().st_mtime_ns, single))
    if not dated:
        raise MemdiagError(
            "no trace given, and no run here (./trace.pkl or ./memdiag-*/rank0.pkl)",
            "give a file, or record one: memdiag record -- python train.py",
        )
    return max(dated)[1]
