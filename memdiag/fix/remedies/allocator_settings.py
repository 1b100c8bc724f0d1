"""Enables expandable segments, if a replay with them needs less."""

from __future__ import annotations

from collections.abc import Iterable

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.fix.base import Proposal
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit
from memdiag.text import phrase

NAME = "allocator-settings"
_SETTING = "expandable_segments:True"


def propose(case: FixCase) -> Iterable[Proposal]:
    """Yields the remedy if expandable segments are off and the allocator is PyTorch's."""
    recorded = case.subject.recorded.conf or ""
    if case.subject.is_foreign or "expandable_segments" in recorded:
        return
    conf = ",".join(part for part in (recorded, _SETTING) if part)
    if not case.accepts(conf):  # as torch before 2.1
        return
    line = f"export {AllocatorSettings.of(case.trace).variable}={conf}"
    yield Proposal(
        NAME,
        phrase("fix.allocator-settings"),
        (),
        Edit(),
        line,
        phrase("fix.allocator-settings.caveat"),
        phrase("fix.allocator-settings.cost"),
        conf=conf,
    )
