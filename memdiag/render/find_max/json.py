"""The answer of ``memdiag record --find-max`` as JSON."""

from __future__ import annotations

import json
from typing import Any

from memdiag.render.find_max.words import notes
from memdiag.render.support.look import PLAIN, Look
from memdiag.results.find_max import LargestFit
from memdiag.text import Language, in_language, phrase


def render(found: LargestFit, look: Look = PLAIN, chosen: Language = "en") -> str:  # noqa: ARG001 - every form is called alike
    """Returns the answer as JSON, with its texts in the language ``chosen``."""
    return json.dumps(as_dict(found, chosen), indent=2) + "\n"


def as_dict(found: LargestFit, chosen: Language) -> dict[str, Any]:
    """Returns the answer as JSON has it, with its texts in the language ``chosen``."""
    values = found.values
    kept = {found.fits, found.fails}
    return {
        "schema_version": 1,
        "name": values.name,
        "low": values.low,
        "high": values.high,
        "step": values.step,
        "fits": found.fits,
        "fails": found.fails,
        "phantom": found.phantom,
        "assumed": in_language(phrase("find_max.assumed"), chosen),
        "notes": [in_language(note, chosen) for note in notes(found)],
        "folder": found.folder,
        "trials": [
            {
                "value": trial.value,
                "fits": trial.fits,
                "why": in_language(trial.why, chosen) or None,
                "peak_reserved_bytes": trial.reserved_bytes,
                "peak_allocated_bytes": trial.allocated_bytes,
                "steps": trial.steps,
                "seconds": round(trial.seconds, 3),
                "folder": trial.folder if trial.value in kept else None,
            }
            for trial in found.trials
        ],
    }
