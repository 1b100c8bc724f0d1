"""The devices that can be recorded on a machine, for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape, ShapeKey
from memdiag.render.support.shapes import FINDING
from memdiag.results.machine import MachineReport, Python, PythonFacts

LAYOUT = JsonLayout(
    name="doctor",
    title="memdiag doctor --json",
    meaning="What memdiag can record on this machine.",
    version=2,
    root=MachineReport,
    shapes=(
        Shape(
            Python,
            (
                "path",
                ShapeKey(
                    "facts", lambda python: python.facts, PythonFacts, "Facts that this Python reports about itself."
                ),
                "backends",
                "reason",
                "fix",
            ),
        ),
        FINDING,
    ),
)


def render(report: MachineReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the report as one JSON object."""
    return LAYOUT.text(report)
