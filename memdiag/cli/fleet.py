"""``memdiag fleet``: diagnose all ranks of a run in one report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.cli.at_option import At, read_moment
from memdiag.cli.budgets import end_if_hit, over, read_budgets
from memdiag.cli.engine_option import Address, check_engine
from memdiag.cli.options import AsHtml, AsMarkdown, Top
from memdiag.errors import MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.results.fleet import FleetReport

_SECONDS = 60.0
_PICTURES = (".png", ".svg", ".pdf")


def fleet(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH…",
            help="Run directories, trace files, patterns in quotes ('run/*/rank*.pkl'), addresses (s3://bucket/run/). "
            "Default: the newest "
            "run in this directory.",
            show_default=False,
        ),
    ] = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain fleet describes the keys).")
    ] = False,
    as_md: AsMarkdown = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help=(
                "Write fleet.json, fleet.md, fleet.html and partial results to this directory; "
                "a later run continues from the partial results."
            ),
            show_default=False,
        ),
    ] = None,
    as_html: AsHtml = None,
    heatmap: Annotated[
        Path | None,
        typer.Option(
            "--heatmap",
            metavar="FILE",
            help="Draw a heat map of memory by rank and training step to FILE (.png, .svg or .pdf).",
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
        typer.Option(
            "--engine",
            metavar="local|ray",
            help="Workers that read the traces: processes of this machine, or a Ray cluster.",
        ),
    ] = "local",
    address: Address = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            help="Number of traces to read in parallel. Default: one per processor.",
            show_default=False,
        ),
    ] = None,
    top: Top = 8,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="oom|outliers|unreadable|warning|critical|CODE",
            help="Exit with status 1 if a rank, file or finding meets this condition; can be repeated.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Diagnose all ranks of a run: which ran out of memory, and which differ from the others.

    Each rank is compared with ranks that hold the same part of the model. The
    first stage of a pipeline, for example, is not an outlier because of its
    embedding. A file that cannot be read is reported, and the other files are
    still diagnosed.

    Exit status: 0 success, 1 a --fail-on condition matched, 2 error or no
    readable file.
    """
    from memdiag.fleet.run import ALIASES, CONDITIONS, FleetOptions, conditions_met, diagnose

    budgets = read_budgets(
        fail_on,
        phrase("errors.fail-on.hint", one="oom", other="MD201"),
        CONDITIONS,
        ", ".join((*CONDITIONS, "warning", "critical")),
        ALIASES,
    )

    from memdiag.cli.emit import emit, form_of
    from memdiag.cli.fleet_progress import OnTerminalFleet
    from memdiag.fleet.engines import FLEET_ENGINES
    from memdiag.fleet.files import find
    from memdiag.render import renderer
    from memdiag.units import parse_bytes

    form = form_of(as_json=as_json, as_md=as_md, output=None)
    size = parse_bytes(capacity) if capacity is not None else None
    if size is not None and size <= 0:
        raise MemdiagError(phrase("errors.capacity", capacity=str(capacity)), phrase("errors.capacity.hint"))
    check_engine(engine, address)
    if heatmap is not None and heatmap.suffix.lower() not in _PICTURES:
        raise MemdiagError(
            phrase("errors.heatmap", heatmap=str(heatmap)),
            phrase("errors.heatmap.hint", value=", ".join(_PICTURES)),
        )
    files, said = find(paths or _newest())
    report = diagnose(
        files,
        FLEET_ENGINES[engine],
        FleetOptions(workers, address, output, size, budget if tune else None, None if at is None else read_moment(at)),
        notes=said,
        listener=OnTerminalFleet(),
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
        raise MemdiagError(phrase("errors.none-read"), report.unreadable[0].message if report.unreadable else "")
    end_if_hit([*(word for word in conditions_met(report) if word in budgets), *over(report.findings, budgets)])


def _newest() -> list[str]:
    """Returns the newest run in the current directory.

    For a run folder, that is the directory itself, since each machine of a job writes a run folder into it.

    Raises:
        MemdiagError: There is no run.
    """
    from memdiag.cli.choose import choose_trace

    chosen = choose_trace(None)
    return ["."] if chosen.parent.name.startswith("memdiag-") else [str(chosen)]


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
        raise MemdiagError(phrase("errors.heatmap-empty", file=str(file)), phrase("errors.heatmap-empty.hint"))
    with busy(phrase("progress.drawing.heat")):
        try:
            renderer("fleet", "picture")(report, file)
        except OSError as error:
            raise MemdiagError(
                phrase("errors.unwritable", file=str(file), value=str(error.strerror or error)),
                phrase("errors.directory-mode"),
            ) from None
    say(phrase("progress.wrote", path=str(file)))
