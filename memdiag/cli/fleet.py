"""``memdiag fleet``: the files of all ranks of a run in, one report out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memdiag.cli.at_option import At, read_moment
from memdiag.cli.budgets import end_if_hit, read_budgets
from memdiag.errors import MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.fleet.engines import Engine, EngineType
    from memdiag.fleet.files import File
    from memdiag.fleet.store import ResultStore
    from memdiag.results.fleet import FleetReport

_SECONDS = 60.0
_ALSO = ("oom", "odd", "broken")
_PICTURES = (".png", ".svg", ".pdf")


def fleet(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH…",
            help="Run directories, trace files, patterns in quotes ('run/*/rank*.pkl'), addresses (s3://bucket/run/). Default: the newest "
            "run in this directory.",
            show_default=False,
        ),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain fleet).")] = False,
    as_md: Annotated[bool, typer.Option("--md", help="Print Markdown to paste into an issue.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Write fleet.json, fleet.md, fleet.html and partial results to this directory; a later run continues from them.",
            show_default=False,
        ),
    ] = None,
    as_html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML page to FILE.", show_default=False)
    ] = None,
    heatmap: Annotated[
        Path | None,
        typer.Option(
            "--heatmap",
            metavar="FILE",
            help="Draw a heat map of bytes by rank and step to FILE (.png, .svg or .pdf).",
            show_default=False,
        ),
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option(
            "--capacity",
            metavar="SIZE",
            help="Memory of each device, for example 64GiB. Default: as recorded.",
            show_default=False,
        ),
    ] = None,
    at: At = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Search allocator settings for all ranks together, and replay them on each rank."),
    ] = False,
    budget: Annotated[
        float,
        typer.Option("--budget-seconds", metavar="N", min=0.0, help="Time limit in seconds for the search of --tune."),
    ] = _SECONDS,
    engine: Annotated[
        str,
        typer.Option("--engine", metavar="local|ray", help="Run in processes of this machine, or on a Ray cluster."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT", help="Address of the Ray cluster.", show_default=False),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            help="Number of files read in parallel. Default: one per processor.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Maximum rows in each list.")] = 8,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="oom|odd|broken|warning|critical|CODE",
            help="Exit with status 1 if a rank, file or finding matches; can be repeated.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Diagnose all ranks of a run: out-of-memory ranks, outliers, and findings in common.

    Ranks are compared with those that hold the same part of the model, so that the first stage of a pipeline is not odd for holding the
    embedding. A file that cannot be read is reported and stops nothing.

    Exit status: 0 success, 1 a --fail-on condition matched, 2 error or no readable file.
    """
    budgets = read_budgets(
        fail_on, "for example --fail-on oom or --fail-on MD201", _ALSO, "oom, odd, broken, warning, critical nor a code"
    )

    from memdiag.cli.emit import emit, form_of
    from memdiag.fleet.engines import FLEET_ENGINES
    from memdiag.fleet.files import find
    from memdiag.render import renderer
    from memdiag.units import parse_bytes

    form = form_of(as_json=as_json, as_md=as_md, output=None)
    size = parse_bytes(capacity) if capacity is not None else None
    if size is not None and size <= 0:
        raise MemdiagError(f"--capacity {capacity}: no device has so much memory", "for example --capacity 64GiB")
    if engine not in FLEET_ENGINES:
        raise MemdiagError(
            f"--engine {engine}: neither {' nor '.join(FLEET_ENGINES)}", "--engine local reads files on this machine"
        )
    if address is not None and engine != "ray":
        raise MemdiagError("--address is that of a Ray cluster", "add --engine ray")
    if heatmap is not None and heatmap.suffix.lower() not in _PICTURES:
        raise MemdiagError(
            f"--heatmap {heatmap}: not a picture that can be drawn", f"end its name in {', '.join(_PICTURES)}"
        )
    files, said = find(paths or _newest())
    options = {} if at is None else {"at": read_moment(at)}
    report = _report(
        files, FLEET_ENGINES[engine], workers, address, output, size, budget if tune else None, said, options
    )

    render = renderer("fleet", form)
    emit(lambda look: render(report, look, top), None)
    if output is not None:
        _write(report, {form: output / f"fleet.{form}" for form in ("json", "md", "html")}, top)
    if as_html is not None:
        _write(report, {"html": as_html}, top)
    if heatmap is not None:
        _draw(report, heatmap)
    if not report.ranks:
        raise MemdiagError("none of the files could be read", report.unreadable[0].message if report.unreadable else "")
    end_if_hit(_over(report, budgets))


def _newest() -> list[str]:
    """Returns the newest run here: its folder's folder, since each machine of a job has left one.

    Raises:
        MemdiagError: There is none.
    """
    from memdiag.cli.choose import choose_trace

    chosen = choose_trace(None)
    return ["."] if chosen.parent.name.startswith("memdiag-") else [str(chosen)]


def _report(
    files: list[File],
    make: EngineType,
    workers: int | None,
    address: str | None,
    output: Path | None,
    capacity: int | None,
    seconds: float | None,
    said: list[str],
    options: Mapping[str, object],
) -> FleetReport:
    """Reads all files and makes the report.

    Args:
        files, workers, address, output, capacity, said: As the command has them.
        make: Makes the engine.
        seconds: Time for a search of settings; None: none is made.
        options: Of each file's diagnosis: ``at``, the moment that it looks at.
    """
    from dataclasses import replace

    from memdiag.cli.talk import busy, say
    from memdiag.fleet.rollup import roll_up
    from memdiag.fleet.store import ResultStore

    store = ResultStore(output) if output is not None else None
    for sentence in said:
        say(sentence)
    with busy(phrase("progress.starting")):
        engine = make(workers=workers, address=address)
    try:
        results, num_kept = _read(files, engine, store, options)
        with busy(phrase("progress.merging")):
            report = roll_up(files, results, capacity=capacity, num_kept=num_kept)
        if seconds is not None and report.ranks:
            report = _with_setting(report, files, engine, store, capacity, seconds)
        return replace(report, notes=(*said, *report.notes))
    finally:
        engine.close()


def _read(
    files: list[File], engine: Engine, store: ResultStore | None, options: Mapping[str, object]
) -> tuple[list[dict[str, Any]], int]:
    """Reads all files; says on Ctrl-C what is kept."""
    from memdiag.cli.loading import announce_compiling
    from memdiag.cli.progress import Line, bar
    from memdiag.cli.talk import say
    from memdiag.fleet.run import read_all
    from memdiag.trace import compiled
    from memdiag.trace.heap import walk

    done = 0
    announce_compiling()
    if compiled.is_cold(walk):
        read_all(files[:1], engine, store, None, **options)  # once, not in every process

    with Line() as line:

        def told(number: int, most: int, broken: int) -> None:
            nonlocal done
            done = number
            line(
                phrase(
                    "progress.files",
                    bar=bar(number / most),
                    count=number,
                    most=most,
                    broken=phrase("progress.files.broken", count=broken) if broken else "",
                )
            )

        try:
            return read_all(files, engine, store, told, **options)
        except KeyboardInterrupt:
            line.__exit__()
            kept = "the same command goes on from there" if store is not None else "nothing is kept: -o DIR does"
            say(f"interrupted: {done:,} of {len(files):,} files were read; {kept}")
            raise


def _with_setting(
    report: FleetReport,
    files: list[File],
    engine: Engine,
    store: ResultStore | None,
    capacity: int | None,
    seconds: float,
) -> FleetReport:
    from memdiag.cli.progress import Line, bar
    from memdiag.fleet.run import with_setting

    with Line() as line:
        return with_setting(
            report,
            files,
            engine,
            store,
            lambda done, most, _: line(phrase("progress.replayed", bar=bar(done / most), count=done, most=most)),
            capacity=capacity,
            seconds=seconds,
            searching=lambda done, most: line(
                phrase("progress.searching", bar=bar(done / most), count=done, most=most)
            ),
        )


def _write(report: FleetReport, files: Mapping[str, Path], top: int) -> None:
    """Writes the report into files, one for each form."""
    from memdiag.cli.emit import emit
    from memdiag.render import renderer

    for form, file in files.items():
        render = renderer("fleet", form)
        emit(lambda look, render=render: render(report, look, top), file)  # type: ignore[misc]


def _draw(report: FleetReport, file: Path) -> None:
    from memdiag.cli.talk import busy, say
    from memdiag.render import renderer

    if report.heatmap is None:
        raise MemdiagError(
            f"--heatmap {file}: there is nothing to draw", "the files hold states of memory, not its history"
        )
    with busy(phrase("progress.drawing.heat")):
        try:
            renderer("fleet", "picture")(report, file)
        except OSError as error:
            raise MemdiagError(
                f"{file}: cannot be written: {error.strerror or error}", "check the directory and its mode"
            ) from None
    say(f"wrote {file}")


def _over(report: FleetReport, budgets: list[str]) -> list[str]:
    """What of the report is over budget, in words."""
    there = {
        "oom": any(row.is_out_of_memory for row in report.ranks),
        "odd": any(odd.delta_bytes > 0 for odd in report.outliers),
        "broken": bool(report.unreadable),
    }
    hits = [word for word in _ALSO if word in budgets and there[word]]
    severities = {"warning": ("critical", "warning"), "critical": ("critical",)}
    wanted = {severity for budget in budgets for severity in severities.get(budget, ())}
    return [
        *hits,
        *(finding.code for finding in report.findings if finding.severity in wanted or finding.code in budgets),
    ]
