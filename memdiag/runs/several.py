"""Several traces: files and run directories. A run directory means one of its ranks, or all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.runs.chosen import choose_trace, ranks_in, silent
from memdiag.text import phrase


def one_each(given: Sequence[Path], rank: int | None = None, say: Callable[[str], None] = silent) -> list[Path]:
    """Returns one trace for each file or run directory: rank ``rank`` of the run, or its first rank.

    Raises:
        MemdiagError: A run does not have this rank, or the path is a file.
    """
    if rank is None:
        return [choose_trace(path, say=say) for path in given]
    chosen = []
    for path in given:
        ranks = ranks_in(path)
        if not ranks:
            raise MemdiagError(phrase("errors.rank", rank=str(rank), path=str(path)), phrase("errors.rank.hint"))
        if rank not in ranks:
            raise MemdiagError(
                phrase("errors.no-rank", path=str(path), rank=str(rank)),
                phrase("errors.no-rank.hint", value=str(_listed(list(ranks)))),
            )
        chosen.append(ranks[rank])
    return chosen


def to_compare(given: Sequence[Path], rank: int | None = None, say: Callable[[str], None] = silent) -> list[Path]:
    """Returns the traces to compare: the ranks of a single run directory, otherwise one for each file or run directory.

    Raises:
        MemdiagError: A run does not have this rank, or the path is a file.
    """
    ranks = list(ranks_in(given[0]).values()) if len(given) == 1 and rank is None else []
    return ranks if len(ranks) > 1 else one_each(given, rank, say)


def all_ranks(given: Sequence[Path], say: Callable[[str], None] = silent) -> list[Path]:
    """Returns every trace: each file, and each rank of a run directory."""
    found = [path for each in given for path in (list(ranks_in(each).values()) or [choose_trace(each, say=say)])]
    return list(dict.fromkeys(found))


def _listed(ranks: list[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return f"ranks {shown}" + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
