"""``memdiag try``: runs a recorded command again with other allocator settings, and holds the prediction against what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memdiag.errors import MemdiagError


def try_run(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="The folder of a recorded run; left out: the newest one here.", show_default=False),
    ] = None,
    *,
    conf: Annotated[
        str | None,
        typer.Option("--conf", metavar="'k:v,…'", help="The allocator settings to run with, all of them.", show_default=False),
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="The settings that memdiag tune recommends for this run (the default).")] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="DIR", help="The folder of the new run.", show_default=False)
    ] = None,
) -> None:
    """Run a recorded command again with better settings, and compare what was predicted with what happened.

    The command, its directory and the variables that bear on memory are those of the recorded run, on the same device, phantom or
    real. What was predicted is said before it starts.

    Exit code: the command's own; 2 it could not be run.
    """
    if conf is not None and best:
        raise MemdiagError("--conf and --best exclude each other", "--best looks for settings, --conf gives them")
    import os

    from memdiag.cli.recorded_run import perform
    from memdiag.cli.rerun import again, find_run
    from memdiag.cli.tried import compare, predict, say_comparison, say_prediction
    from memdiag.recorder.launch import end_as

    recorded = find_run(run)
    prediction = predict(recorded, conf)
    say_prediction(recorded, prediction)
    order = again(recorded, {prediction.variable: prediction.conf}, None if output is None else str(Path(output).resolve()))
    os.chdir(str(recorded.manifest["cwd"]))
    done = perform(order, quiet=True)
    if done.run is not None:
        say_comparison(compare(prediction, done.run), prediction, done)
    raise typer.Exit(end_as(done.ended))
