"""``memdiag export``: write a trace in another tool's format."""

from __future__ import annotations

from memdiag.errors import MemdiagError


def export() -> None:
    """Write a trace in another tool's format."""
    raise MemdiagError("memdiag export is being built", "")
