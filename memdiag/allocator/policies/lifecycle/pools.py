"""MindSpeed's four pools: two pools of the caching allocator, each with a small and a large half.

Blocks, free sets and the driver are those of ``memdiag.allocator.engine``. Only the choice of the pool and the search
differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from memdiag.allocator.engine.memory import new_record, record_type, round_up
from memdiag.allocator.engine.model import Model, segments
from memdiag.allocator.policies.lifecycle.conf import NO_LIMIT, MindSpeedSettings
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.sizes.cuda import SEGMENT_GRAIN, SMALL_LIMIT
from memdiag.trace.compiled import lean_part
from memdiag.trace.compiled_sizes import get_allocation_size as cuda_allocation_size
from memdiag.trace.table import Array

NAMES: tuple[str, ...] = ("default.large", "default.small", "long.large", "long.small")
DEFAULT, LONG = range(2)  # the pools
# pool ids in the trace of a simulated run, where the second pool looks like a private pool
IDS = (
    (0, 0),
    (0, 1),
)
LARGE, SMALL = range(2)  # and their halves

# State in addition to the engine's: settings; ``usable``, the reserved bytes plus the free bytes when the device was
# last asked (-1: never); the state set by the marks; and the next mark.
POOLS = record_type(
    "alr_max", "optimizes", "threshold", "usable", "in_forward", "in_step", "is_precise", "forward_starts", "next_mark"
)
RULES = Rules(whole_fraction_is_limit=True, capacity_is_asked=True)


def conf_of(settings: MindSpeedSettings) -> Conf:
    """Returns the settings as those of the caching allocator."""
    return Conf(
        expandable=settings.expandable,
        max_split=None if settings.max_split_bytes >= NO_LIMIT else settings.max_split_bytes,
    )


def add_pools(model: Model, settings: MindSpeedSettings) -> Any:
    """Makes the second pool of ``model`` one for long-lived tensors; returns the record of POOLS."""
    long = model.nodes[model.state.pools + LONG]
    # For the engine it is a private pool that counts no segments and is released together with the default pool.
    long.is_private, long.exists, long.cuda_malloc_count, long.is_freeable = 0, 1, 1, 1
    pools = new_record(POOLS)
    pools.alr_max, pools.usable = settings.alr_max_bytes, -1
    pools.optimizes, pools.threshold = settings.optimizes, int(min(settings.threshold_bytes, float(NO_LIMIT)))
    return pools


def of_segments(model: Model) -> Array:
    """Returns the pool (index into ``NAMES``, int8) of every segment, including released ones, in reservation order."""
    nodes = model.nodes
    lane = nodes["lane"][segments(model.state, nodes)]
    pool: Array = (2 * nodes["index"][nodes["pool"][lane]] + nodes["is_small"][lane]).astype(np.int8)
    return pool


@lean_part
def get_allocation_size(size: int, lifetime: int) -> int:
    """Returns the bytes of a new segment for a request (get_allocation_size)."""
    if lifetime == DEFAULT or size <= SMALL_LIMIT:
        return cuda_allocation_size(size)
    return round_up(size, SEGMENT_GRAIN)
