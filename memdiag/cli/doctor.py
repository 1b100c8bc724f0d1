"""``memdiag doctor``: check whether memdiag can record on this machine, and print fixes."""

from __future__ import annotations

from typing import Annotated

import typer

from memdiag.cli.options import AsJson
from memdiag.text import phrase


def doctor(
    pythons: Annotated[
        list[str] | None,
        typer.Option(
            "--python",
            metavar="PATH",
            help="Python or environment to check; can be repeated. Default: those on the PATH and in this directory.",
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Check whether memdiag can record here: find torch and devices, and make a test recording.

    Exit status: 0 success, even if recording is impossible; 2 error.
    """
    import os
    import sys

    from memdiag.cli.talk import busy, look_of, write_out
    from memdiag.render import renderer
    from memdiag.runs.machine import survey_machine

    report = survey_machine(pythons or (), os.environ, lambda path: busy(phrase("progress.looking", file=path)))
    write_out(renderer("doctor", "json" if as_json else "terminal")(report, look_of(sys.stdout)))
