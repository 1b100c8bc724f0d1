"""torch_npu's caching allocator: that of CUDA with 32 more bytes per request, and optional pages of 1 GiB."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from memdiag.allocator.policies.caching.policy import CachingPolicy
from memdiag.allocator.policies.expandable.policy import with_expandable_segments
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.settings.exclusions import EXCLUDED_BY_EXPANDABLE
from memdiag.sizes.cuda import SMALL_LIMIT
from memdiag.sizes.npu import HUGE_PAGE
from memdiag.trace.table import Array


class NpuPolicy(CachingPolicy):
    """NPUCachingAllocator.cpp."""

    backend = "npu"

    def inherit_conf(self, keys: Mapping[str, str]) -> dict[str, str]:
        """Returns the settings of the recording, without those that expandable segments exclude."""
        if keys.get("expandable_segments") != "True":
            return dict(keys)
        return without_excluded(keys)

    def block_and_segment_sizes(self, sizes: Array, conf: Conf, rules: Rules) -> tuple[Array, Array]:
        """Returns ``round_size`` and ``get_allocation_size`` of requests of ``sizes`` bytes (int64)."""
        rounded, segment = super().block_and_segment_sizes(sizes, conf, rules)
        if conf.huge_pages:
            segment = np.where(rounded <= SMALL_LIMIT, segment, -(-rounded // HUGE_PAGE) * HUGE_PAGE)
        return rounded, segment


class NpuExpandablePolicy(NpuPolicy):
    """NPUCachingAllocator.cpp with ``expandable_segments:True``."""

    def effective_conf(self, conf: str) -> str:
        """Returns the settings with expandable segments."""
        return with_expandable_segments(conf)

    def inherit_conf(self, keys: Mapping[str, str]) -> dict[str, str]:
        """Returns the settings of the recording that are compatible with expandable segments."""
        return without_excluded(keys)


def without_excluded(keys: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that torch_npu accepts together with expandable segments."""
    return {key: value for key, value in keys.items() if key not in EXCLUDED_BY_EXPANDABLE}


NPU = NpuPolicy()
NPU_EXPANDABLE = NpuExpandablePolicy()
