"""What ``memdiag lint`` found: plain data, for any renderer."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.findings import SCHEMA_VERSION, Finding, Note


@dataclass(frozen=True, slots=True)
class LintReport:
    """The places that rules point at, file by file and line by line.

    Attributes:
        num_files: How many were looked at.
        findings: Each has the place as ``path:line`` and the line itself in its first piece of evidence.
        num_ignored: Places that a comment in the source silences.
        notes: Files that could not be read.
    """

    num_files: int
    findings: tuple[Finding, ...]
    num_ignored: int
    notes: tuple[Note, ...] = ()
    schema_version: int = SCHEMA_VERSION
