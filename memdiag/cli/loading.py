"""Reads a trace for a command: says what takes long while it does, and that the first trace of an installation takes longer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memdiag.cli.talk import busy, say

if TYPE_CHECKING:
    from memdiag.trace.model import Trace


def read_trace(path: Path, lead: str = "") -> Trace:
    """Returns the trace in a file; ``lead`` goes before what is said on a terminal meanwhile.

    Raises:
        MemdiagError: It is no trace, or cannot be read.
    """
    with busy(f"{lead}loading memdiag …"):
        from memdiag.sources import load
        from memdiag.trace import compiled

    is_cold = getattr(compiled, "is_cold", None)
    if is_cold is not None and is_cold():
        say("building the compiled parts of memdiag: once, about 20 seconds")
    with busy(f"{lead}reading {path} …"):
        return load(path)
