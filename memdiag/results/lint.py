"""The report of ``memdiag lint``."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.results.finding import SCHEMA_VERSION, Finding, Note


@dataclass(frozen=True, slots=True)
class LintReport:
    """Places in source code that match a rule, by file and line.

    Attributes:
        num_files: Number of files that the given paths contain.
        findings: Each has ``path:line`` and the line itself in its first evidence.
        num_ignored: Places that a comment in the source suppresses.
        notes: Why files were not checked.
        unchecked: Paths of the files that were not checked.
    """

    num_files: int
    findings: tuple[Finding, ...]
    num_ignored: int
    notes: tuple[Note, ...] = ()
    unchecked: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION
