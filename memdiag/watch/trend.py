"""The trend of a memory curve, if it is more than noise: a least-squares line and its standard error.

Allocated memory goes up and down within every training step, so two readings say nothing about growth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_FEWEST = 10  # readings
_SURE = 3.0  # standard errors


def trend(times: Sequence[float], values: Sequence[float]) -> float | None:
    """Returns the growth per second; 0 if it is not significant, None if there are too few values.

    Args:
        times: Seconds, one for each value.
        values: The curve.
    """
    count = len(values)
    if count < _FEWEST:
        return None
    middle, level = sum(times) / count, sum(values) / count
    spread = sum((time - middle) ** 2 for time in times)
    if not spread:
        return None
    slope = sum((time - middle) * (value - level) for time, value in zip(times, values, strict=True)) / spread
    rest = sum((value - level - slope * (time - middle)) ** 2 for time, value in zip(times, values, strict=True))
    error = math.sqrt(rest / (count - 2) / spread)
    return slope if abs(slope) > _SURE * error else 0.0
