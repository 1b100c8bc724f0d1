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
        given: A file, a run directory (``memdiag-…`` with ``rank0.pkl`` …), or None: the newest of ``./trace.pkl`` and
            ``./memdiag-*/rank*.pkl``.

    Raises:
        MemdiagError: Nothing was given and no run is here.
    """
    if given is None:
        chosen = _newest(Path())
        say(f"reading {chosen}, the newest run here")
        return chosen
    ranks = _ranks(given)
    if not ranks:
        return given  # also what cannot be read: the source says why
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


def _newest(here: Path) -> Path:
    runs = [ranks for folder in here.glob("memdiag-*") if (ranks := _ranks(folder))]
    dated = [(max(path.stat().st_mtime_ns for path in ranks), ranks[0]) for ranks in runs]
    single = here / "trace.pkl"
    if single.is_file():
        dated.append((single.stat().st_mtime_ns, single))
    if not dated:
        raise MemdiagError(
            "no trace given, and no run here (./trace.pkl or ./memdiag-*/rank0.pkl)",
            "give a file, or record one: torch.cuda.memory._record_memory_history() before training, "
            'torch.cuda.memory._dump_snapshot("trace.pkl") after a few steps or when it fails',
        )
    return max(dated)[1]
