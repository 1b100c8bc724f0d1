"""``memdiag view``: walk through a trace in the terminal."""

from __future__ import annotations

from memdiag.errors import MemdiagError


def view() -> None:
    """Walk through a trace in the terminal."""
    raise MemdiagError("memdiag view is being built", "")
