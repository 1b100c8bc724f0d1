"""The four pools on the machine of the caching allocator: two pools as that one knows them, each with its small and its large half.

Blocks, the ordered sets of free ones and the driver are the machine's own (``memdiag.allocator.engine``); only which pool a request goes
to, and where it may look, is different here.
"""

from __future__ import annotations

import numpy as np

from memdiag.allocator.conf import Conf
from memdiag.allocator.engine import memory as mem
from memdiag.allocator.engine.state import new_state
from memdiag.allocator.lifecycle.conf import NO_LIMIT, Settings
from memdiag.allocator.rules import Rules
from memdiag.trace.compiled import njit_part
from memdiag.trace.table import Array
from memdiag.units import MIB

NAMES: tuple[str, ...] = ("default.large", "default.small", "long.large", "long.small")
DEFAULT, LONG, NUM_LIFETIMES = range(3)  # the machine's pools
IDS = ((0, 0), (0, 1))  # what they are called where a simulated run is shown as a trace: the second one like a private pool
LARGE, SMALL = range(2)  # and their halves

GRAIN = 512
MOST_SMALL = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
LARGE_FROM = 10 * MIB  # requests from here on have a segment of their own size in the default pool too
PAGE = 2 * MIB
# The first places of ``k`` (``tables``), what this allocator keeps beside the machine's registers: settings; USABLE: this process's bytes
# and what was left when the device was asked last (-1: never); what the marks have said so far, and which is the next one.
ALR_MAX, OPTIMIZE, THRESHOLD, CAPACITY, USABLE, IN_FORWARD, IN_STEP, IS_PRECISE, FORWARD_STARTS, NEXT_MARK, NUM_KEPT = range(11)
_RULES = Rules(whole_fraction_is_limit=True)


def empty(settings: Settings, capacity: int | None, fraction: float | None, num_streams: int) -> tuple[Array, Array, Array]:
    """Returns registers, memory and the first places of ``k`` of an allocator that holds nothing."""
    max_split = None if settings.max_split_bytes >= NO_LIMIT else settings.max_split_bytes
    conf = Conf(expandable=settings.expandable, max_split=max_split, fraction=fraction)
    r, m = new_state(conf, _RULES, capacity, num_streams, NUM_LIFETIMES, mem.BY_NEXT_CALL, np.empty(0, np.int64))
    long = int(r[mem.POOLS]) + LONG * mem.ROW
    m[long + mem.IS_PRIVATE] = 0  # to the machine, the second pool is one that counts nothing, ...
    m[long + mem.KNOWN], m[long + mem.COUNT], m[long + mem.FREEABLE] = 1, 1, 1  # ... and gives back what is cached with the first one
    kept = np.zeros(NUM_KEPT, np.int64)
    kept[[ALR_MAX, USABLE]] = settings.alr_max_bytes, -1
    kept[[OPTIMIZE, THRESHOLD]] = settings.optimizes, int(min(settings.threshold_bytes, float(NO_LIMIT)))
    kept[CAPACITY] = -1 if capacity is None else capacity
    return r, m, kept


def of_segments(r: Array, m: Array) -> Array:
    """Returns the pool of every range there ever was (index into ``NAMES``, int8), in the order in which they were obtained."""
    rows = m[int(r[mem.GIVEN]) : int(r[mem.FRESH])].reshape(-1, mem.ROW)
    ranges = rows[rows[:, mem.STATE] == mem.A_RANGE]
    lane = ranges[np.argsort(ranges[:, mem.NUMBER]), mem.LANE]
    pool: Array = (2 * m[m[lane + mem.POOL] + mem.INDEX] + m[lane + mem.IS_SMALL]).astype(np.int8)
    return pool


@njit_part
def get_allocation_size(size: int, lifetime: int) -> int:
    """Returns the bytes of a new segment for a request."""
    if size <= MOST_SMALL:
        return SMALL_SEGMENT
    if lifetime == DEFAULT and size < LARGE_FROM:
        return LARGE_SEGMENT
    return (size + PAGE - 1) // PAGE * PAGE
