"""The answer of ``memdiag record --find-max`` for a terminal: one sentence, and a table of the runs."""

from __future__ import annotations

from memdiag.render.find_max.words import notes
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import TerminalPage
from memdiag.results.find_max import LargestFit, Trial, ValueRange
from memdiag.text import joined, phrase, sentence
from memdiag.units import format_bytes


def progress(values: ValueRange, trial: Trial) -> str:
    """Returns the line about a run that has just ended."""
    said = phrase("find_max.fits") if trial.fits else phrase("find_max.fails", why=trial.failure)
    peak = phrase("find_max.peak", bytes=format_bytes(trial.peak_reserved_bytes)) if trial.peak_reserved_bytes else ""
    facts = joined((said, peak), ", ")
    return (
        "memdiag: "
        f"{phrase('find_max.trial', value=f'{values.name}={trial.value}', facts=facts, seconds=f'{trial.seconds:.1f}')}"
    )


def render(found: LargestFit, look: Look = PLAIN) -> str:
    """Returns the answer, and below it a table of the runs in ``look.width`` columns."""
    rows = [
        [found.values.name, "", *(phrase(f"find_max.head.{head}") for head in ("reserved", "allocated", "seconds"))]
    ]
    for trial in sorted(found.trials, key=lambda trial: trial.value):
        peaks = [format_bytes(value) for value in (trial.peak_reserved_bytes, trial.peak_allocated_bytes)]
        fate = phrase("find_max.fits") if trial.fits else phrase("outlook.fate.oom")
        rows.append([str(trial.value), fate, *peaks, f"{trial.seconds:.1f}"])
    page = TerminalPage(Look(width=look.width))
    page.grid("rlrrr", rows, indent=0)
    return "\n".join([*_answer(found), "", *page.finish().splitlines()]) + "\n"


def _answer(found: LargestFit) -> list[str]:
    name = found.values.name
    largest, failing = f"{name}={found.largest_fitting}", f"{name}={found.smallest_failing}"
    best, failed = found.trial_of(found.largest_fitting), found.trial_of(found.smallest_failing)
    why = failed.failure if failed is not None else ""
    if best is None:
        said: list[str] = [phrase("find_max.none", value=failing, why=why)]
    elif failed is None:
        said = [phrase("find_max.all", value=largest)]
    else:
        said = [phrase("find_max.largest", value=largest, next=failing, why=why), sentence(phrase("find_max.assumed"))]
    said += [phrase("find_max.note", note=note) for note in notes(found)]
    folders = [trial.folder for trial in (failed, best) if trial is not None]
    return said + [phrase("find_max.next", command=f"memdiag analyze {folder}") for folder in folders]
