"""Offers ``memdiag fix`` after the report of a run that ran out of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdiag.text import phrase

if TYPE_CHECKING:
    from pathlib import Path


def offer_fix(trace: Path) -> None:
    """Prints the command that makes the run of a trace fit, if the run can be repeated."""
    from memdiag.cli.talk import say
    from memdiag.runs.fixable import fix_command

    command = fix_command(trace)
    if command:
        say(f"memdiag: {phrase('fix.offer', command=command)}")
