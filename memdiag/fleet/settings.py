"""One line of allocator settings for all ranks: searched on a few of them, then replayed on every one.

A search over a thousand ranks would take hours, and most are alike, so the median rank of each group and the worst rank
represent the others. The effect on all ranks is not assumed to be the same: the line is replayed on each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.fleet.fetch import local_copy
from memdiag.fleet.files import File
from memdiag.fleet.replaying import subject_of
from memdiag.fleet.rollup import worst_of
from memdiag.fleet.work import Result
from memdiag.results.fleet import FleetReport, SettingsCheck
from memdiag.results.tune import TuneReport
from memdiag.runs.tuning import tune
from memdiag.sources import load
from memdiag.text import phrase
from memdiag.trace.model import Trace

MOST_SEARCHED = 6  # traces in memory at once


def chosen(report: FleetReport) -> list[int]:
    """Returns the ranks to search on.

    They are the worst, the largest outlier, and the median of each group, large groups first.
    """
    if not report.ranks:
        return []
    odd = [each.rank for each in report.outliers if each.delta_bytes > 0][:1]
    middles = [
        group.median_rank for group in sorted(report.groups, key=lambda group: (-len(group.ranks), group.number))
    ]
    return list(dict.fromkeys([worst_of(report.ranks).rank, *odd, *middles]))[:MOST_SEARCHED]


def search(
    files: Sequence[File], *, capacity: int | None, seconds: float, progress: Callable[[int, int], None] | None = None
) -> TuneReport:
    """Searches a line for the traces in some files.

    Raises:
        MemdiagError: None of them can be replayed, or they are of several backends.
    """
    subjects = []
    with ExitStack() as copies:
        for file in files:
            trace = load_as(copies.enter_context(local_copy(file.url)), file.name)
            if (subject := subject_of(trace)) is not None:
                subjects.append(subject)
    if not subjects:
        raise MemdiagError(
            phrase("errors.no-allocations.all"),
            phrase("errors.from-beginning"),
        )
    return tune(subjects, capacity=capacity, seconds=seconds, progress=progress)


def load_as(path: Path, name: str) -> Trace:
    """Returns the trace in a file, under its name in reports."""
    return replace(load(path), path=name)


def checked(results: Iterable[tuple[int, Result]]) -> SettingsCheck:
    """Returns the result of replaying a line on many ranks.

    Args:
        results: Number of each rank, and its result of ``replayed``.
    """
    facts_by_rank: dict[int, Mapping[str, Any]] = {}
    without = []
    for rank, result in results:
        if "facts" in result:
            facts_by_rank[rank] = result["facts"]
        else:
            without.append(rank)
    highest = max(facts_by_rank, key=lambda rank: (facts_by_rank[rank]["after"]["peak_bytes"], -rank), default=None)
    return SettingsCheck(
        num_ranks=len(facts_by_rank),
        failing_ranks_before=tuple(sorted(rank for rank, facts in facts_by_rank.items() if facts["before"]["fails"])),
        failing_ranks_after=tuple(sorted(rank for rank, facts in facts_by_rank.items() if facts["after"]["fails"])),
        peak_before_bytes=max((facts["before"]["peak_bytes"] for facts in facts_by_rank.values()), default=0),
        peak_after_bytes=max((facts["after"]["peak_bytes"] for facts in facts_by_rank.values()), default=0),
        peak_rank_after=highest,
        worse_ranks=tuple(sorted(rank for rank, facts in facts_by_rank.items() if _is_worse(facts))),
        not_replayed_ranks=tuple(sorted(without)),
    )


def _is_worse(facts: Mapping[str, Any]) -> bool:
    more = int(facts["after"]["peak_bytes"]) - int(facts["before"]["peak_bytes"])
    return more > (facts["error_bytes"] or 0) and not facts["before"]["fails"]
