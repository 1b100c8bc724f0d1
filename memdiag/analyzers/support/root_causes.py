"""Findings that are the root cause of a failure: memory that grows, or that the program does not need."""

from __future__ import annotations

from memdiag.diagnosis.growth import GrowingMemory
from memdiag.diagnosis.thresholds import SOON_PASSES, SOON_STEPS
from memdiag.results.finding import Finding
from memdiag.text import Phrase

# Memory that the program does not need: this comes first, whatever the other findings are.
AVOIDABLE = ("MD106", "MD127", "MD128", "MD129", "MD132", "MD133", "MD134", "MD135", "MD137", "MD138", "MD139")
RETAINED = "MD111"  # avoidable as well, if it is critical
# Growing memory: the evidence (its key) with the amount, its number of steps or passes ("": one), and how many are
# soon.
_GROWING = {
    "MD106": ("kept_passes.kept", "kept_passes.graphs", SOON_PASSES),
    "MD135": ("collected.held", "collected.passes", SOON_PASSES),
    "MD301": ("leaks.growth", "", SOON_STEPS),
}


def is_root(finding: Finding) -> bool:
    """Returns whether a finding is the root cause: memory that grows, or that the program does not need."""
    is_graph = finding.code == RETAINED and finding.severity == "critical"
    return finding.code in AVOIDABLE or is_graph or (finding.code == "MD301" and finding.severity != "info")


def is_collection(finding: Finding) -> bool:
    """Returns whether a finding reports outputs that fill the device: a smaller batch gives as many of them."""
    return finding.code == "MD135" and finding.severity == "critical"


def growth_of(findings: tuple[Finding, ...]) -> GrowingMemory | None:
    """Returns the growing memory that the findings of a failure report; None: none."""
    growing = next((finding for finding in findings if finding.code in _GROWING and is_root(finding)), None)
    if growing is None:
        return None
    values = {
        fact.what.key: fact.value
        for fact in growing.evidence
        if isinstance(fact.what, Phrase) and isinstance(fact.value, int | float)
    }
    what, of, soon = _GROWING[growing.code]
    return GrowingMemory(growing.title, values.get(what, 0) / max(values.get(of, 1), 1), soon)
