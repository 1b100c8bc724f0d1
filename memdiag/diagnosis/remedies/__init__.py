"""Remedies for the same cause in messages and traces: one text, condition and cost for each.

The caller knows the backend, the settings in effect, and so the line to paste; it decides whether the remedy applies.
"""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.results.finding import Fix
from memdiag.text import phrase


def expandable_segments(line: str, backend: str, dropped: Sequence[str] = ()) -> Fix:
    """Returns how to enable expandable segments.

    Args:
        line: The line to paste.
        backend: "cuda", "hip" or "npu".
        dropped: Keys that are set, but excluded by expandable segments on this backend, and so missing from ``line``.
    """
    title = phrase("remedies.expandable")
    if backend == "npu":
        when, keys = phrase("remedies.expandable.npu.when"), ", ".join(dropped)
        caveat = (
            phrase("remedies.expandable.npu.dropped", keys=keys)
            if dropped
            else phrase("remedies.expandable.npu.caveat")
        )
        return Fix(title, "env", line, when, caveat)
    when = phrase("remedies.expandable.hip.when") if backend == "hip" else phrase("remedies.expandable.cuda.when")
    return Fix(title, "env", line, when, phrase("remedies.expandable.cuda.caveat"))


def max_split_size(line: str, limit_mb: int, when: str) -> Fix:
    """Returns how to stop the allocator from splitting blocks of more than ``limit_mb`` MiB.

    Args:
        line: The line to paste.
        limit_mb: The limit in it.
        when: When it applies; "" for always.
    """
    return Fix(phrase("remedies.split", limit=limit_mb), "env", line, when, phrase("remedies.split.caveat"))


def present(*fixes: Fix | None) -> tuple[Fix, ...]:
    """Returns the fixes that apply."""
    return tuple(fix for fix in fixes if fix is not None)
