"""Result of ``memdiag bisect``: the commit or package version that raised the peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class BisectStep:
    """One recorded commit or version.

    Attributes:
        name: The commit (abbreviated) or version.
        title: Subject of the commit; null for a version.
        status: "good" (within the budget), "bad" (over it, or out of memory), or "skipped" (it could not be measured).
        peak_bytes: The peak of the process that needed the most memory; null: unknown.
        reason: Why the commit or version was skipped, or that it ran out of memory; null if it ran to its end.
        seconds: Duration of the run.
        folder: Folder of the recording.
    """

    name: str
    title: str
    status: Literal["good", "bad", "skipped"]
    peak_bytes: int | None
    reason: str
    seconds: float
    folder: str


@dataclass(frozen=True)
class GrownSite:
    """A call site that holds more memory in the first bad recording than in the last good one.

    Attributes:
        label: Short name ("train.py:38 mlp").
        good_bytes: Live bytes of the call site at the peak of the good recording.
        bad_bytes: Live bytes of the call site at the peak of the bad recording.
        inside: The line of the searched package in which the call site allocates; null: none, or commits were searched.
    """

    label: str
    good_bytes: int
    bad_bytes: int
    inside: str = ""


@dataclass(frozen=True)
class BisectReport:
    """The search, and its answer.

    Attributes:
        package: The package whose versions were searched; null if commits were searched.
        metric: "peak_reserved" or "peak_allocated".
        budget_bytes: The limit between good and bad.
        steps: Every run, in the order of the search.
        last_good: The last good commit or version.
        first_bad: The commit or version that raised the peak; null if it may be one that was skipped.
        candidates: Commits or versions of which one raised the peak; more than one only if some were skipped.
        sites: Call sites that grew most; empty: unknown.
        verdict: The answer in a sentence.
    """

    package: str
    metric: str
    budget_bytes: int
    steps: tuple[BisectStep, ...]
    last_good: str
    first_bad: str
    candidates: tuple[str, ...]
    sites: tuple[GrownSite, ...]
    verdict: str
