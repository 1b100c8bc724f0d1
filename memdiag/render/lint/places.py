"""Splits the location of a finding of ``memdiag lint`` into file and line."""

from __future__ import annotations

from memdiag.results.finding import Finding


def place_of(finding: Finding) -> tuple[str, int]:
    """Returns path and line, from 1."""
    path, _, line = finding.evidence[0].where.rpartition(":")
    return path, int(line)
