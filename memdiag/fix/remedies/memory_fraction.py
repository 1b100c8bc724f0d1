"""Lets the process use the whole device although it sets a smaller per-process memory fraction (finding MD206)."""

from __future__ import annotations

from collections.abc import Iterable

from memdiag.fix.base import Proposal
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit
from memdiag.fix.structure import few
from memdiag.text import phrase

NAME = "memory-fraction"
_SETTING = "per_process_memory_fraction"  # set by the user's environment, which no code in the program can change


def propose(case: FixCase) -> Iterable[Proposal]:
    """Yields the remedy if the program sets a memory fraction below 1."""
    share = case.subject.limits.share
    if share is None or share >= 1 or _SETTING in (case.subject.recorded.conf or ""):
        return
    yield Proposal(
        NAME,
        phrase("fix.memory-fraction", share=f"{share:g}"),
        few(case.lines_calling("set_per_process_memory_fraction")),
        Edit(),
        f"torch.{case.trace.backend}.set_per_process_memory_fraction(1.0)",
        phrase("fix.memory-fraction.caveat"),
        phrase("fix.memory-fraction.cost"),
        "memory_fraction",
        lifts_fraction=True,
    )
