"""``memdiag export``: write a trace in another tool's format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memdiag.cli.at_option import At, read_moment
from memdiag.cli.options import TraceOrRun
from memdiag.registry import EXPORTS
from memdiag.text import phrase


def export(
    trace: TraceOrRun = None,
    *,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="NAME",
            help=f"Output format: {', '.join(EXPORTS)}. Default: chosen by the ending of --output.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|DIR",
            help="File or directory to write. Default: <trace>.<ending of the format> in this directory.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        int | None,
        typer.Option(
            "--device", metavar="N", min=0, help="Export only this device. Default: all devices.", show_default=False
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="NAME,…",
            help="Tables that csv or parquet writes: tensors, events, stacks. Default: all.",
            show_default=False,
        ),
    ] = None,
    min_size: Annotated[
        str | None,
        typer.Option(
            "--min-size",
            metavar="SIZE",
            help="Minimum size of the tensors in a perfetto file, for example 1MiB.",
            show_default=False,
        ),
    ] = None,
    at: At = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the list of written files as JSON (memdiag explain export).")
    ] = False,
) -> None:
    """Write a trace in another tool's format.

    perfetto: counters and slices for ui.perfetto.dev. speedscope: flame graphs
    of bytes by call stack. csv, parquet: tables of tensors, events and stacks.
    snapshot: for PyTorch's own viewer.

    Exit status: 0 success, 2 error.
    """
    from memdiag.cli.choose import choose_trace
    from memdiag.cli.loading import read_trace
    from memdiag.cli.talk import busy, say, write_out
    from memdiag.exports.writing import destination, format_for, request
    from memdiag.exports.writing import export as export_trace

    path = choose_trace(trace)
    if format is None and output is None:
        from memdiag.sources.files import read_head

        read_head(path)  # report a missing file before a missing format
    name = format_for(format, output)
    file = destination(name, path, output)
    wanted = request(
        name, device=device, tables=table or (), min_size=min_size, at=None if at is None else read_moment(at)
    )
    read = read_trace(path)
    with busy(phrase("progress.writing", file=str(file))):
        written = export_trace(read, name, file, wanted)
    for each in written.files:
        say(phrase("progress.wrote", path=each.file))
    if as_json:
        from memdiag.render import renderer

        write_out(renderer("export", "json")(written))
