"""Findings that memdiag fix cannot mend: what to change by hand if no set of remedies makes the program fit."""

from __future__ import annotations

from collections.abc import Collection

from memdiag.analyzers.report import build_report
from memdiag.fix.case import FixCase
from memdiag.results.fix import FixAdvice

_MOST = 3
_MENDED_BY = {
    "MD104": "lean-optimizer",
    "MD105": "chunked-loss",
    "MD106": "no-grad",
    "MD112": "free-gradients",
    "MD124": "gradient-bucket-view",
    "MD125": "release-leftovers",
    "MD127": "load-to-host",
    "MD129": "fsdp-units",
    "MD142": "shared-graph-pool",
    "MD206": "memory-fraction",
}


def advise(case: FixCase, proposed: Collection[str]) -> tuple[FixAdvice, ...]:
    """Returns the changes of code that the report of a recording recommends, the most important first.

    Args:
        case: The recording.
        proposed: Names of the remedies that memdiag fix itself proposes.
    """
    found = []
    for finding in build_report(case.trace).findings:
        fix = next((each for each in finding.fixes if each.kind == "code"), None)
        if fix is None or finding.severity == "info" or _MENDED_BY.get(finding.code) in proposed:
            continue
        found.append(FixAdvice(finding.code, finding.title, fix.title, fix.change))
    return tuple(found[:_MOST])
