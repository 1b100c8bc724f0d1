"""Compares the losses and the speed of two runs, which the recorder noted (``memdiag.recorder.fixing``)."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from statistics import median

from memdiag.results.fix import LossComparison, StepTimes

_WARM_UP = 1  # intervals between two losses that do not count


def compare_losses(before: Path, after: Path) -> LossComparison:
    """Returns how far the losses of two runs differ; processes are paired by rank.

    Args:
        before, after: Folders with a file RANK-PID.txt for each process; a line has a loss and its time in nanoseconds.
    """
    first, second = _noted(before), _noted(after)
    pairs = [pair for rank in first.keys() & second.keys() for pair in zip(first[rank], second[rank], strict=False)]
    usable = [(a, b) for (a, _), (b, _) in pairs if math.isfinite(a) and math.isfinite(b)]
    if not usable:
        return LossComparison(0, None)
    return LossComparison(len(usable), max(abs(a - b) / max(abs(a), abs(b), 1e-12) for a, b in usable))


def compare_times(before: Path, after: Path) -> StepTimes | None:
    """Returns the median time from one loss to the next in two runs, or None if there are too few losses.

    Args:
        before, after: Folders as for ``compare_losses``.
    """
    first, second = _interval(before), _interval(after)
    return None if first is None or second is None else StepTimes(first, second)


def _interval(folder: Path) -> int | None:
    found = []
    for noted in _noted(folder).values():
        times = [at for _, at in noted]
        found += [late - early for early, late in pairwise(times)][_WARM_UP:]
    return int(median(found) / 1000) if found else None


def _noted(folder: Path) -> dict[str, list[tuple[float, int]]]:
    found: dict[str, list[tuple[float, int]]] = {}
    for file in sorted(folder.glob("*.txt")):
        for line in file.read_text(encoding="ascii").splitlines():
            loss, _, at = line.partition(" ")
            found.setdefault(file.name.partition("-")[0], []).append((float(loss), int(at)))
    return found
