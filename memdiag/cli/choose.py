"""Chooses the trace of a command, and prints on stderr which one was chosen."""

from __future__ import annotations

from pathlib import Path

from memdiag.cli.talk import say
from memdiag.runs import chosen


def choose_trace(given: Path | None, rank: int | None = None) -> Path:
    """Returns the trace file that ``memdiag.runs.chosen.choose_trace`` chooses."""
    return chosen.choose_trace(given, rank, say=say)
