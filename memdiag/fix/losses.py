"""Compares the losses of two runs, which the recorder noted (``memdiag.recorder.fixing``)."""

from __future__ import annotations

import math
from pathlib import Path

from memdiag.results.fix import LossComparison


def compare_losses(before: Path, after: Path) -> LossComparison:
    """Returns how far the losses of two runs differ; processes are paired by rank.

    Args:
        before, after: Folders with a file RANK-PID.txt for each process, one loss in a line.
    """
    first, second = _losses(before), _losses(after)
    pairs = [pair for rank in first.keys() & second.keys() for pair in zip(first[rank], second[rank], strict=False)]
    usable = [(a, b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    if not usable:
        return LossComparison(0, None)
    return LossComparison(len(usable), max(abs(a - b) / max(abs(a), abs(b), 1e-12) for a, b in usable))


def _losses(folder: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for file in sorted(folder.glob("*.txt")):
        lines = file.read_text(encoding="ascii").splitlines()
        found.setdefault(file.name.partition("-")[0], []).extend(float(line) for line in lines)
    return found
