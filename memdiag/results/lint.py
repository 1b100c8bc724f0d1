"""The report of ``memdiag lint``."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.results.finding import Finding, Note


@dataclass(frozen=True, slots=True)
class LintReport:
    """Habits found in source code, by file and line.

    Attributes:
        num_files: Number of files that the given paths name.
        findings: Findings; the first evidence of each has the place as ``path:line``, and the source line as its value.
        num_ignored: Number of places that a comment in the source suppresses.
        notes: Why files were not checked.
        unchecked: Paths of the files that were not checked.
    """

    num_files: int
    findings: tuple[Finding, ...]
    num_ignored: int
    notes: tuple[Note, ...] = ()
    unchecked: tuple[str, ...] = ()
