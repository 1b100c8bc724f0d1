"""The report of ``memdiag lint``."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.results.finding import SCHEMA_VERSION, Finding, Note


@dataclass(frozen=True, slots=True)
class LintReport:
    """The places that rules point at, file by file and line by line.

    Attributes:
        num_files: How many files the given paths name.
        findings: Each has the place as ``path:line`` and the line itself in its first piece of evidence.
        num_ignored: Places that a comment in the source silences.
        notes: Why files were not checked.
        unchecked: Paths of the files that were not checked.
    """

    num_files: int
    findings: tuple[Finding, ...]
    num_ignored: int
    notes: tuple[Note, ...] = ()
    unchecked: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION
