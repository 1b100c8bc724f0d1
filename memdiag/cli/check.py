"""``memdiag check``: check traces against budgets and a baseline."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.cli.at_option import At, read_moment
from memdiag.cli.options import OutputText
from memdiag.errors import DONE, MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.results.check import CheckReport


def check(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TRACE...", help="Trace files, or run directories with all their ranks.", show_default=False
        ),
    ] = None,
    *,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget",
            metavar="NAME=VALUE",
            help="Highest allowed value of a metric, for example peak_reserved=60GiB, stranded=2% or ooms=0; "
            "can be repeated.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="FILE.json",
            help="Compare with the metrics in this baseline file, which --update writes.",
            show_default=False,
        ),
    ] = None,
    tolerance: Annotated[
        list[str] | None,
        typer.Option(
            "--tolerance",
            metavar="SHARE|NAME=VALUE",
            help="Allowed increase over the baseline, for example 2%, stranded=10% or retries=1; can be repeated.",
            show_default=False,
        ),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Write the metrics of these traces to the --baseline file.")
    ] = False,
    device: Annotated[
        int | None,
        typer.Option(
            "--device",
            metavar="N",
            min=0,
            help="Check only this device. Default: all devices in use.",
            show_default=False,
        ),
    ] = None,
    at: At = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain check describes the keys).")
    ] = False,
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE.xml", help="Also write JUnit XML to this file.", show_default=False),
    ] = None,
    github: Annotated[
        bool,
        typer.Option(
            "--github",
            help="Print annotations for a pull request to stderr; always on in GitHub Actions.",
        ),
    ] = False,
    output: OutputText = None,
) -> None:
    """Check traces against budgets and a baseline, for CI.

    A metric missing from a trace is reported as unknown (exit status 2), never
    as passed.

    Exit status: 0 all metrics within their limits, 1 a limit exceeded, 2 error
    or a metric unknown.
    """
    from memdiag.gates.request import CheckRequest

    moment = read_moment(at)
    request = CheckRequest.read(budget or (), baseline, tolerance or (), update=update)

    from memdiag.cli.loading import read_trace

    report = request.check(_traces(traces or (), (baseline, junit, output)), device, moment, read_trace)
    _show(report, as_json=as_json, junit=junit, github=github, output=output)
    if report.exit_code != DONE:
        raise typer.Exit(report.exit_code)


def _traces(given: Sequence[Path], written: Sequence[Path | None]) -> list[Path]:
    """Returns the traces to check.

    Raises:
        MemdiagError: An output file is one of the traces.
    """
    from memdiag.cli.choose import choose_trace
    from memdiag.cli.talk import say
    from memdiag.output_file import is_same
    from memdiag.runs.several import all_ranks

    paths = all_ranks(given, say) if given else [choose_trace(None)]
    for file in written:
        if file is not None and any(is_same(file, path) for path in paths):
            raise MemdiagError(phrase("errors.is-one", file=str(file)), phrase("errors.name-another"))
    return paths


def _show(report: CheckReport, *, as_json: bool, junit: Path | None, github: bool, output: Path | None) -> None:
    import sys

    from memdiag.cli.emit import emit, form_of
    from memdiag.render import renderer

    form = form_of(as_json=as_json, as_md=False, output=output)
    render = renderer("check", "json" if form == "json" else "terminal")
    emit(lambda look: render(report, look), output)
    if junit is not None:
        as_xml = renderer("check", "junit")
        emit(lambda look: as_xml(report, look), junit)
    if (github or os.environ.get("GITHUB_ACTIONS") == "true") and sys.stderr is not None:
        from memdiag.redaction import is_on, redact_text
        from memdiag.text import FALLBACK

        lines = renderer("check", "github")(report)
        lines = redact_text(lines) if is_on() else lines
        sys.stderr.write(lines.encode(sys.stderr.encoding or "ascii", FALLBACK).decode(sys.stderr.encoding or "ascii"))
        sys.stderr.flush()
