"""What to do about an out-of-memory message: remedies for its cause, on its backend and version, with what each is expected to do."""

from __future__ import annotations

from memdiag.findings import Finding
from memdiag.oom.model import Found, Judgement


def advise(found: Found, judgement: Judgement) -> tuple[Finding, ...]:  # noqa: ARG001
    """Returns findings, the most useful first.

    Within a finding the fixes are alternatives, ranked; no fix of one finding excludes the first of another.
    """
    return ()
