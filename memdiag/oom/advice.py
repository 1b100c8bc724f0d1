"""What to do about an out-of-memory message: remedies for its cause, on its backend and version, with what each is expected to do."""

from __future__ import annotations

from memdiag.findings import Finding
from memdiag.oom.model import Found, Judgement


def advise(found: Found, judgement: Judgement) -> tuple[Finding, ...]:
    """Returns findings, the most useful first. No two of their fixes exclude each other across findings; within a finding they are
    alternatives, ranked.
    """
    return ()
