"""Processes a fleet from its files to its report, with stored results of an earlier run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.fleet.engines import EngineType, FleetEngine
from memdiag.fleet.files import File
from memdiag.fleet.store import ResultStore
from memdiag.fleet.work import Result, Task
from memdiag.redaction import is_on
from memdiag.results.fleet import FleetReport, Tuned
from memdiag.text import language, phrase

OnProgress = Callable[[int, int, int], None]  # arguments: files done, total, and unreadable ones among those done


class FleetListener:
    """Receives the progress of a diagnosis; this one ignores it."""

    def say(self, text: str) -> None:
        """Receives a line of information."""

    def busy(self, text: str) -> AbstractContextManager[None]:  # noqa: ARG002 - others show it
        """Called around work that takes long."""
        return nullcontext()

    def announce_compiling(self) -> None:
        """Called before the first file is read: the first run of an installation compiles memdiag's loops."""

    def reading(self, num_files: int, *, is_kept: bool) -> AbstractContextManager[OnProgress | None]:  # noqa: ARG002
        """Called around the reading of all files; ``is_kept``: results are kept if it is interrupted."""
        return nullcontext()

    def tuning(self) -> AbstractContextManager[tuple[OnProgress | None, Callable[[int, int], None] | None]]:
        """Called around the search for a setting: returns what hears of replays and of settings tried."""
        return nullcontext((None, None))


SILENT = FleetListener()
CONDITIONS = ("oom", "outliers", "unreadable")  # for --fail-on, in addition to severities and finding codes
ALIASES = {"odd": "outliers", "broken": "unreadable"}  # the names before the JSON keys were chosen


@dataclass(frozen=True)
class FleetOptions:
    """Options of a fleet diagnosis.

    Attributes:
        workers: Number of processes that read files; None: chosen by the engine.
        address: Address of a Ray cluster; None: a local one.
        output: Folder for results, from which a later run continues; None: nothing is stored.
        capacity: Bytes of the device; None: the recorded capacity.
        tune_seconds: Time limit for a search of settings; None: no search.
        at: The moment of every diagnosis, as for ``build_report``; None: the default.
    """

    workers: int | None = None
    address: str | None = None
    output: Path | None = None
    capacity: int | None = None
    tune_seconds: float | None = None
    at: str | int | None = None


def diagnose(
    files: Sequence[File],
    make: EngineType,
    options: FleetOptions,
    *,
    notes: Sequence[str] = (),
    listener: FleetListener = SILENT,
) -> FleetReport:
    """Reads all files of a run and returns the report.

    Args:
        files: The files, as ``memdiag.fleet.files.find`` returns them.
        make: Makes the engine, a value of ``FLEET_ENGINES``.
        options: The options of the diagnosis.
        notes: Remarks on the files, which the report repeats.
        listener: Receives progress.
    """
    store = ResultStore(options.output) if options.output is not None else None
    of_tasks = {} if options.at is None else {"at": options.at}
    capacity, seconds = options.capacity, options.tune_seconds
    for note in notes:
        listener.say(note)
    with listener.busy(phrase("progress.starting")):
        engine = make(workers=options.workers, address=options.address)
    try:
        listener.announce_compiling()
        _compile_once(files, engine, store, of_tasks)
        with listener.reading(len(files), is_kept=store is not None) as on_progress:
            results, num_kept = read_all(files, engine, store, on_progress, **of_tasks)
        with listener.busy(phrase("progress.merging")):
            from memdiag.fleet.rollup import roll_up

            report = roll_up(files, results, capacity=capacity, num_kept=num_kept)
        if seconds is not None and report.ranks:
            with listener.tuning() as (replayed, searching):
                report = with_setting(
                    report, files, engine, store, replayed, capacity=capacity, seconds=seconds, searching=searching
                )
        return replace(report, notes=(*notes, *report.notes))
    finally:
        engine.close()


def _compile_once(
    files: Sequence[File], engine: FleetEngine, store: ResultStore | None, options: Mapping[str, object]
) -> None:
    """Reads one file before all others where loops are not compiled yet, so that not every process compiles them."""
    from memdiag.trace import compiled
    from memdiag.trace.heap import walk

    if compiled.is_cold(walk):
        read_all(files[:1], engine, store, None, **options)


def conditions_met(report: FleetReport) -> list[str]:
    """Returns the words of ``CONDITIONS`` that apply to a report."""
    met = {
        "oom": any(row.is_out_of_memory for row in report.ranks),
        "outliers": any(odd.delta_bytes > 0 for odd in report.outliers),
        "unreadable": bool(report.unreadable),
    }
    return [word for word in CONDITIONS if met[word]]


def read_all(
    files: Sequence[File],
    engine: FleetEngine,
    store: ResultStore | None = None,
    on_progress: OnProgress | None = None,
    **options: object,
) -> tuple[list[Result], int]:
    """Returns the result of each file, and the number of results that were stored before.

    Args:
        files: The files.
        engine: Engine that reads them.
        store: Storage for results, which are stored as they arrive, so that nothing is lost on Ctrl-C.
        on_progress: Called after each file.
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
    if on_progress is not None:
        on_progress(len(results), len(files), 0)
    if left:
        for number, result in engine.map([tasks[at] for at in left]):
            at = left[number]
            results[at] = _shared(result)
            num_broken += "error" in result
            if store is not None:
                store.put(files[at], tasks[at], result)
            if on_progress is not None:
                on_progress(len(results), len(files), num_broken)
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
    engine: FleetEngine,
    store: ResultStore | None = None,
    on_progress: OnProgress | None = None,
    *,
    capacity: int | None = None,
    seconds: float = 60.0,
    searching: Callable[[int, int], None] | None = None,
) -> FleetReport:
    """Returns the report with one settings line for all ranks, or with a note on why there is none.

    Args:
        report: The report on these files.
        files: The files, as passed to ``read_all``.
        engine: Engine that replays the line on all ranks.
        store: Storage for results.
        on_progress: Called after each replay.
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
        on_progress,
        action="replay",
        conf=found.recommended.conf,
        capacity=capacity,
    )
    return replace(report, tuned=Tuned(tuple(searched), found, checked(zip(numbers, results, strict=True))))
