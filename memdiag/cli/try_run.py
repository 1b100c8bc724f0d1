"""``memdiag try``: rerun a recorded command with other allocator settings, and compare prediction and measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memdiag.errors import MemdiagError
from memdiag.text import phrase


def try_run(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="Directory of a recorded run, or a trace in it. Default: the newest run in this directory.",
            show_default=False,
        ),
    ] = None,
    *,
    conf: Annotated[
        str | None,
        typer.Option(
            "--conf",
            metavar="'k:v,…'",
            help="Allocator settings of the new run; they replace all recorded ones.",
            show_default=False,
        ),
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="Use the settings that memdiag tune recommends for this run (default).")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Directory for the files of the new run.", show_default=False
        ),
    ] = None,
) -> None:
    """Rerun a recorded command with better settings, and compare prediction and result.

    memdiag repeats the recorded command in its directory, with the recorded
    environment variables that affect memory, on the same real or simulated
    device. It prints the prediction before the run starts.

    Exit status: the command's own; 2 error.
    """
    if conf is not None and best:
        raise MemdiagError(phrase("errors.conf-best"), phrase("errors.conf-best.hint"))
    import os

    from memdiag.cli.loading import OnTerminal
    from memdiag.cli.talk import say
    from memdiag.recorder.launch import end_as
    from memdiag.render.try_run import terminal
    from memdiag.runs.recording import perform
    from memdiag.runs.rerun import again, find_run
    from memdiag.runs.trying import compare, predict

    listener = OnTerminal()
    recorded = find_run(run, say)
    plan = predict(recorded, conf, listener)
    for line in terminal.forecast(plan.forecast):
        say(line)
    changes = {plan.forecast.variable: plan.forecast.conf}
    order = again(recorded, changes, None if output is None else str(Path(output).resolve()))
    os.chdir(plan.forecast.cwd)
    done = perform(order, listener)
    if done.run is not None:
        for line in terminal.result(compare(plan, done, listener)):
            say(line)
    raise typer.Exit(end_as(done.ended))
