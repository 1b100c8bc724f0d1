"""Processes a fleet from its files to its report, with stored results of an earlier run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.fleet.engines import Engine
from memdiag.fleet.files import File
from memdiag.fleet.store import ResultStore
from memdiag.fleet.work import Result, Task
from memdiag.redaction import is_on
from memdiag.results.fleet import FleetReport, Tuned
from memdiag.text import language, phrase

Told = Callable[[int, int, int], None]  # done, total, and broken ones among the done


def read_all(
    files: Sequence[File], engine: Engine, store: ResultStore | None = None, told: Told | None = None, **options: object
) -> tuple[list[Result], int]:
    """Returns the result of each file, and the number of results that were stored before.

    Args:
        files: The files.
        engine: Engine that reads them.
        store: Storage for results, which are stored as they arrive, so that nothing is lost on Ctrl-C.
        told: Called after each file.
        options: Task options; the default ``action`` is "diagnose".
    """
    tasks: list[Task] = [
        {"url": file.url, "name": file.name, "action": "diagnose", "redact": is_on(), "lang": language(), **options}
        for file in files
    ]
    kept = {
        at: _shared(result)
        for at, file in enumerate(files)
        if store is not None and (result := store.get(file, tasks[at])) is not None
    }
    results: dict[int, Result] = dict(kept)
    left = [at for at in range(len(files)) if at not in kept]
    num_broken = 0
    if told is not None:
        told(len(results), len(files), 0)
    if left:
        for number, result in engine.map([tasks[at] for at in left]):
            at = left[number]
            results[at] = _shared(result)
            num_broken += "error" in result
            if store is not None:
                store.put(files[at], tasks[at], result)
            if told is not None:
                told(len(results), len(files), num_broken)
    return [results[at] for at in range(len(files))], len(kept)


def _shared(value: Any) -> Any:
    """Returns a result with shared texts.

    Call sites, names and fixes are the same in most ranks, and half of the memory.
    """
    if isinstance(value, str):
        return sys.intern(value)
    if isinstance(value, list):
        return [_shared(each) for each in value]
    if isinstance(value, dict):
        return {sys.intern(key): _shared(each) for key, each in value.items()}
    return value


def with_setting(
    report: FleetReport,
    files: Sequence[File],
    engine: Engine,
    store: ResultStore | None = None,
    told: Told | None = None,
    *,
    capacity: int | None = None,
    seconds: float = 60.0,
    searching: Callable[[int, int], None] | None = None,
) -> FleetReport:
    """Returns the report with one settings line for all ranks, or with a note that says why there is none.

    Args:
        report: The report on these files.
        files: The files, as passed to ``read_all``.
        engine: Engine that replays the line on all ranks.
        store: Storage for results.
        told: Called after each replay.
        capacity: Bytes of the device, or None for the recorded value.
        seconds: Time limit for the search.
        searching: Called with the number of evaluated settings, and their total.
    """
    from memdiag.fleet.settings import checked, chosen, search

    by_name = {file.name: file for file in files}
    ranks = {row.rank: by_name[row.file] for row in report.ranks}
    searched = chosen(report)
    try:
        found = search([ranks[rank] for rank in searched], capacity=capacity, seconds=seconds, progress=searching)
    except MemdiagError as error:
        return replace(report, notes=(*report.notes, phrase("fleet.no_setting", why=error.message)))
    if found.recommended is None:
        return replace(report, tuned=Tuned(tuple(searched), found))
    numbers = list(ranks)
    results, _ = read_all(
        [ranks[rank] for rank in numbers],
        engine,
        store,
        told,
        action="replay",
        conf=found.recommended.conf,
        capacity=capacity,
    )
    return replace(report, tuned=Tuned(tuple(searched), found, checked(zip(numbers, results, strict=True))))
