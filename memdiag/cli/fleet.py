"""``memdiag fleet``: diagnose every rank of a run at once."""

from __future__ import annotations

from memdiag.errors import MemdiagError


def fleet() -> None:
    """Diagnose every rank of a run at once."""
    raise MemdiagError("memdiag fleet is being built", "")
