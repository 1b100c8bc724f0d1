"""Releases the memory that temporary tensors of initialisation leave in the cache (finding MD125)."""

from __future__ import annotations

from collections.abc import Iterable

from memdiag.analyzers.leftovers import FLOOR, find_leftovers
from memdiag.fix.base import Proposal
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit
from memdiag.fix.structure import few
from memdiag.text import phrase

NAME = "release-leftovers"


def propose(case: FixCase) -> Iterable[Proposal]:
    """Yields the remedy if initialisation leaves segments partly free, and later tensors do not fill them."""
    backend = case.trace.backend
    found = find_leftovers(case.view) if backend in {"cuda", "npu"} else None
    if found is None or int(found.unused_bytes.sum()) < FLOOR:
        return
    yield Proposal(
        NAME,
        phrase("fix.release-leftovers"),
        few(list(dict.fromkeys(frame.label for frame in case.callers(found.rows)[-1:]))),
        Edit(releases=(found.at + 1,)),
        f"torch.{backend}.empty_cache()  # once, before the first step",
        phrase("fix.release-leftovers.caveat"),
        phrase("fix.release-leftovers.cost"),
        "release_leftovers",
    )
