"""``memdiag compare``: compare two or more traces: what grew, where, and why."""

from __future__ import annotations

from memdiag.errors import MemdiagError


def compare() -> None:
    """Compare two or more traces: what grew, where, and why."""
    raise MemdiagError("memdiag compare is being built", "")
