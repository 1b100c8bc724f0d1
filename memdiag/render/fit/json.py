"""The result of ``memdiag fit`` for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape
from memdiag.results.fit import DeviceFit, FitCell, FitReport, Shortfall
from memdiag.text import Language, language

LAYOUT = JsonLayout(
    name="fit",
    title="memdiag fit --json",
    meaning=(
        "Which configurations of a command fit on which devices. fit.json in the folder of the search has the same "
        "content."
    ),
    version=1,
    root=FitReport,
    shapes=(
        Shape(
            FitReport,
            (
                "command",
                "axes",
                "devices",
                "cells",
                "front",
                "shortfalls",
                "num_excluded",
                "num_runs",
                "num_reused",
                "margin",
                "notes",
                "folder",
            ),
        ),
        Shape(FitCell, null_if_empty=frozenset({"error", "output"})),
        Shape(Shortfall, null_if_empty=frozenset({"setting", "larger_device"})),
        Shape(DeviceFit, null_if_empty=frozenset({"setting", "decided_by", "trace"})),
    ),
)


# All forms have the same signature.
def render(report: FitReport, look: Look = PLAIN, chosen: Language | None = None) -> str:  # noqa: ARG001
    """Returns the report as JSON, with its texts in the language ``chosen`` (default: the active one)."""
    return LAYOUT.text(report, chosen or language())
