"""The answer of ``memdiag record --find-max`` for programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memdiag.render.find_max.words import notes
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape, ShapeKey
from memdiag.results.find_max import LargestFit, Trial
from memdiag.text import Language, phrase


def _trials(found: LargestFit) -> list[Trial]:
    """Returns the runs; the files of most of them are no longer there."""
    kept = {found.largest_fitting, found.smallest_failing}
    return [trial if trial.value in kept else replace(trial, folder="") for trial in found.trials]


_FOUND = Shape(
    LargestFit,
    (
        ShapeKey("name", lambda found: found.values.name, str, "Name of the placeholder in the command."),
        ShapeKey("low", lambda found: found.values.low, int, "Smallest value of the range."),
        ShapeKey("high", lambda found: found.values.high, int, "Upper end of the range."),
        ShapeKey("step", lambda found: found.values.step, int, "Distance between two values of the range."),
        "largest_fitting",
        "smallest_failing",
        "phantom_device",
        ShapeKey("assumption", lambda _: phrase("find_max.assumed"), str, "Assumption of the search."),
        ShapeKey("notes", notes, list[str], "Facts that make the answer less certain."),
        "folder",
        ShapeKey("trials", _trials, list[Trial], "Every run, in the order of the search."),
    ),
)

LAYOUT = JsonLayout(
    name="record-find-max",
    title="memdiag record --find-max NAME=LOW..HIGH --json",
    meaning=(
        "The largest value of a placeholder with which a command fits into memory. find-max.json has the same content."
    ),
    version=2,
    root=LargestFit,
    shapes=(
        _FOUND,
        Shape(
            Trial,
            (
                "value",
                "fits",
                "failure",
                "peak_reserved_bytes",
                "peak_allocated_bytes",
                "unknown_bytes",
                "num_steps",
                ShapeKey(
                    "seconds", lambda trial: round(trial.seconds, 3), float, "Duration of the program in seconds."
                ),
                "folder",
            ),
            null_if_empty=frozenset({"failure", "folder"}),
        ),
    ),
    has_program_version=False,
)


# All forms have the same signature.
def render(found: LargestFit, look: Look = PLAIN, chosen: Language = "en") -> str:  # noqa: ARG001
    """Returns the answer as JSON, with its texts in the language ``chosen``."""
    return LAYOUT.text(found, chosen)


def as_dict(found: LargestFit, chosen: Language) -> dict[str, Any]:
    """Returns the answer as JSON has it, with its texts in the language ``chosen``."""
    return LAYOUT.as_dict(found, chosen)
