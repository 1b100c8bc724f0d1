"""Prints the summary of a recorded run on stderr: for ``memdiag record``."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memdiag.recorder.launch import ProgramEnd
    from memdiag.results.recording import RunSummary
    from memdiag.runs.finishing import FinishedRun


def print_summary(run: FinishedRun, ended: ProgramEnd, before: str) -> None:
    """Prints the recorded files, or why recording failed; after an out-of-memory error, also its report.

    Args:
        run: The run.
        ended: How its command ended.
        before: Why recording was impossible, if the command itself shows it; "": unknown.
    """
    from memdiag.cli.loading import OnTerminal
    from memdiag.cli.talk import say
    from memdiag.render.record import terminal
    from memdiag.runs.summary import summarize, with_memory

    summary = summarize(run, ended, before)
    for line in terminal.recorded(summary):
        say(line)
    summary = with_memory(summary, ended, OnTerminal("memdiag: "))
    for line in terminal.memory(summary):
        say(line)
    _print_oom(summary)
    for line in terminal.rest(summary):
        say(line)


def _print_oom(summary: RunSummary) -> None:
    from memdiag.cli.talk import look_of, say
    from memdiag.render import renderer

    if summary.memory is None or summary.memory.oom is None or sys.stderr is None:
        return
    say("")
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(renderer("oom", "terminal")(summary.memory.oom, look_of(sys.stderr), every=False, top=3))
        sys.stderr.flush()
    say("")
