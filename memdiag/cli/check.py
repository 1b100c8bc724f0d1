"""``memdiag check``: check traces against budgets and a baseline, for CI."""

from __future__ import annotations

from memdiag.errors import MemdiagError


def check() -> None:
    """Check traces against budgets and a baseline, for CI."""
    raise MemdiagError("memdiag check is being built", "")
