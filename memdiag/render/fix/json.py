"""The result of ``memdiag fix`` for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape
from memdiag.results.fix import FixAdvice, FixRefusal, FixReport, FixStep
from memdiag.text import Language, language

LAYOUT = JsonLayout(
    name="fix",
    title="memdiag fix --json",
    meaning="Remedies for a program: prediction, and measurement of the fixed program.",
    version=1,
    root=FixReport,
    shapes=(Shape(FixReport), Shape(FixStep), Shape(FixRefusal), Shape(FixAdvice)),
)


# All forms have the same signature.
def render(report: FixReport, look: Look = PLAIN, chosen: Language | None = None) -> str:  # noqa: ARG001
    """Returns the report as JSON, with its texts in the language ``chosen`` (default: the active one)."""
    return LAYOUT.text(report, chosen or language())
