"""Texts on the answer of ``memdiag record --find-max`` that several forms share."""

from __future__ import annotations

from memdiag.results.find_max import LargestFit
from memdiag.text import Phrase, phrase


def notes(found: LargestFit) -> list[Phrase]:
    """Returns the reasons that make the result less certain."""
    best = found.trial_of(found.largest_fitting)
    if best is None:
        return []
    name = f"{found.values.name}={best.value}"
    said = []
    if best.peak_reserved_bytes is None:
        said.append(phrase("find_max.note.nothing", value=name))
    elif best.num_steps < 2:
        said.append(phrase("find_max.note.steps", value=name, count=best.num_steps))
    if best.caught:
        said.append(phrase("find_max.note.caught", value=name, count=best.caught))
    return said
