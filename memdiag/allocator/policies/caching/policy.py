"""PyTorch's CUDA caching allocator, with expandable segments where the settings say so."""

from __future__ import annotations

import numpy as np

from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.sizes.cuda import MIN_BLOCK
from memdiag.trace.layout import Layout, allocation_sizes
from memdiag.trace.table import Array

BACKEND = "cuda"


def with_own(text: str) -> str:
    """Returns the settings as they are."""
    return text


def columns(sizes: Array, conf: Conf, rules: Rules) -> tuple[Array, Array]:
    """Returns, for requests of ``sizes`` bytes (int64): bytes of the block, and of the segment where the driver is needed (int64)."""
    rounded = Layout(pad=rules.pad, divisions=conf.divisions).round(sizes)
    if rules.one_division_is_exact and 1 in conf.divisions:
        entry = np.clip(np.frexp(np.maximum(sizes, 1).astype(np.float64))[1] - 21, 0, len(conf.divisions) - 1)
        rounded = np.where((np.asarray(conf.divisions)[entry] == 1) & (sizes > MIN_BLOCK), sizes, rounded)
    return rounded, allocation_sizes(rounded, conf.large_segment)
