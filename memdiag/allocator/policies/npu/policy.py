"""torch_npu's caching allocator: CUDA's, with 32 bytes more for each request, and pages of 1 GiB where asked for."""

from __future__ import annotations

import numpy as np

from memdiag.allocator.policies.caching import policy as caching
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.sizes.cuda import SMALL_LIMIT
from memdiag.sizes.npu import HUGE_PAGE
from memdiag.trace.table import Array

BACKEND = "npu"
with_own = caching.with_own


def columns(sizes: Array, conf: Conf, rules: Rules) -> tuple[Array, Array]:
    """Returns, for requests of ``sizes`` bytes (int64): bytes of the block, and of the segment where the driver is needed (int64)."""
    rounded, segment = caching.columns(sizes, conf, rules)
    if conf.huge_pages:
        segment = np.where(rounded <= SMALL_LIMIT, segment, -(-rounded // HUGE_PAGE) * HUGE_PAGE)
    return rounded, segment
