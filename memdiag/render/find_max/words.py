"""Texts on the answer of ``memdiag record --find-max`` that several forms share."""

from __future__ import annotations

from memdiag.results.find_max import LargestFit, Trial
from memdiag.text import Phrase, phrase
from memdiag.units import format_bytes


def notes(found: LargestFit) -> list[Phrase]:
    """Returns the reasons that make the result less certain."""
    best = found.trial_of(found.largest_fitting)
    if best is None:
        return []
    name = f"{found.values.name}={best.value}"
    said = []
    if found.failing_below is not None:
        below = f"{found.values.name}={found.failing_below}"
        said.append(phrase("find_max.note.below", value=name, below=below, name=found.values.name))
    if best.peak_reserved_bytes is None:
        said.append(phrase("find_max.note.nothing", value=name))
    elif best.num_steps < 2:
        said.append(phrase("find_max.note.steps", value=name, count=best.num_steps))
    if best.caught:
        said.append(phrase("find_max.note.caught", value=name, count=best.caught))
    if best.unknown_bytes and best.peak_allocated_bytes is not None:
        said += _scratch(found, best, name)
    return said


def _scratch(found: LargestFit, best: Trial, name: str) -> list[Phrase]:
    """Returns the effect of cuDNN's unknown scratch memory on the answer."""
    low = best.peak_allocated_bytes or 0
    bounds = {"low": format_bytes(low), "high": format_bytes(low + best.unknown_bytes)}
    sure = max((trial.value for trial in found.trials if trial.fits_surely), default=None)
    said = [phrase("find_max.note.scratch", value=name, bytes=format_bytes(best.unknown_bytes), **bounds)]
    if sure is None:
        said.append(phrase("find_max.note.scratch.none"))
    elif sure < best.value:
        said.append(phrase("find_max.note.scratch.sure", value=f"{found.values.name}={sure}"))
    return said
