"""``memdiag plot``: draw a trace as a picture: PNG, SVG or PDF."""

from __future__ import annotations

from memdiag.errors import MemdiagError


def plot() -> None:
    """Draw a trace as a picture: PNG, SVG or PDF."""
    raise MemdiagError("memdiag plot is being built", "")
