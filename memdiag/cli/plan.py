"""``memdiag plan``: place tensors with known lifetimes in as little memory as possible."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from memdiag.errors import BUDGET_HIT, MemdiagError
from memdiag.text import phrase


def plan(
    trace: Annotated[
        Path | None,
        typer.Argument(
            metavar="TRACE",
            help="CSV file with columns id,lower,upper,size, or a trace. Default: the newest run in this directory.",
            show_default=False,
        ),
    ] = None,
    *,
    capacity: Annotated[
        str | None,
        typer.Option(
            "--capacity",
            metavar="SIZE",
            help="Memory of the device, for example 64GiB; the search stops as soon as a plan fits.",
            show_default=False,
        ),
    ] = None,
    align: Annotated[
        str | None,
        typer.Option(
            "--align",
            metavar="SIZE",
            help="Alignment of offsets in bytes. Default: 512 for a trace, 1 for a CSV file.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="N", help="Time limit in seconds for the search.")
    ] = 60.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Random seed.")] = 0,
    ends: Annotated[
        str | None,
        typer.Option(
            "--ends",
            metavar="half-open|open|closed",
            help="Whether the start and end times of a lifetime in a CSV file belong to it: only the start, neither, "
            "or both.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        int | None,
        typer.Option(
            "--device",
            metavar="N",
            min=0,
            help="Use only this device of a trace. Default: the one whose tensors have the most bytes.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.csv",
            help="Write the plan to this CSV file, with the columns id,lower,upper,size,offset.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain plan describes the keys).")
    ] = False,
) -> None:
    """Choose addresses for tensors with known lifetimes, so that they need little memory.

    Only an allocator that knew all future requests could achieve this result.
    memdiag verifies that tensors that are live at the same time never overlap.

    Exit status: 0 success, 1 the plan exceeds --capacity, 2 error.
    """
    from memdiag.cli.choose import choose_trace
    from memdiag.output_file import is_same
    from memdiag.units import parse_bytes

    capacity_bytes = None if capacity is None else parse_bytes(capacity)
    align_bytes = None if align is None else parse_bytes(align)
    if align_bytes == 0:
        raise MemdiagError(phrase("errors.align", align=str(align)), phrase("errors.align.hint"))
    if not 0 < seconds < 1e9:
        raise MemdiagError(phrase("errors.seconds", seconds=f"{seconds:g}"), phrase("errors.seconds.hint"))
    ends_known = ("half-open", "open", "closed")
    if ends is not None and ends not in ends_known:
        raise MemdiagError(
            phrase("errors.ends", ends=str(ends), value=", ".join(ends_known[:-1]), value2=str(ends_known[-1])),
            phrase("errors.ends.hint"),
        )
    path = choose_trace(trace)
    if output is not None and is_same(output, path):
        raise MemdiagError(phrase("errors.plan-input", output=str(output)), phrase("errors.name-another"))
    from memdiag.cli.emit import emit
    from memdiag.cli.loading import read_trace
    from memdiag.cli.progress import ProgressLine
    from memdiag.cli.talk import busy, say
    from memdiag.render import renderer

    with busy(phrase("progress.planner")):
        from memdiag.runs import planning
    buffers = planning.read_buffers(path, ends, device, read=read_trace, say=say)
    with busy(phrase("progress.planner")):
        planning.warm()
    with ProgressLine() as line:
        report = planning.plan_buffers(
            buffers, align=align_bytes, capacity=capacity_bytes, seconds=seconds, seed=seed, output=output, say=line
        )
    if output is not None:
        say(phrase("progress.wrote", path=str(output)))
    emit(partial(renderer("plan", "json" if as_json else "terminal"), report), None)
    if report.fits is False:
        raise typer.Exit(BUDGET_HIT)
