"""The machine's registers and memory before the first call, and how they are made larger."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from memdiag.allocator.conf import Conf
from memdiag.allocator.engine import memory as mem
from memdiag.allocator.engine.driver import GRAIN
from memdiag.allocator.rules import BY_ADDRESS, BY_BIRTH, Rules
from memdiag.trace.table import Array

FIRST_ADDRESS = 1 << 44  # of invented ranges
UNKNOWN_DEVICE = 1 << 40  # what a device of unknown size reserves address space for
_ROOM = 4096  # rows


def limits(fraction: float | None, conf: Conf, capacity: int | None, rules: Rules) -> tuple[int, int]:
    """Returns the limit in bytes that a memory fraction sets (-1: none), and where garbage collection begins."""
    if fraction is None or capacity is None or (fraction == 1.0 and not rules.whole_fraction_is_limit):
        return -1, 0
    limit = int(fraction * capacity)
    return limit, int(conf.gc_threshold * limit)


def new_state(
    conf: Conf, rules: Rules, capacity: int | None, num_streams: int, num_pools: int, done: int, given: Array,
    no_split: Collection[int] = (), stand_in: Sequence[int] = (), captured: Collection[int] = (),
) -> tuple[Array, Array]:  # fmt: skip
    """Returns registers and memory of an allocator that holds nothing yet.

    ``given``: addresses of the ranges to come, -1: unknown; as two rows, with the number of the lane of each.
    """
    r = np.zeros(mem.NUM_REGISTERS, np.int64)
    num_lanes = num_pools * 2 * num_streams
    given, lane_of_given = given if given.ndim == 2 else (given, None)
    given_rows = -(-len(given) * 2 // mem.ROW)
    r[mem.LANES] = mem.ROW  # the first row is nothing
    r[mem.POOLS] = r[mem.LANES] + num_lanes * mem.LANE_ROWS * mem.ROW
    r[mem.STREAMS] = r[mem.POOLS] + num_pools * mem.ROW
    r[mem.WAITING] = r[mem.STREAMS] + num_streams * mem.ROW
    r[mem.GIVEN] = r[mem.WAITING] + mem.ROW
    r[mem.FRESH] = r[mem.GIVEN] + given_rows * mem.ROW
    r[mem.CAPACITY] = r[mem.FRESH] + _ROOM * mem.ROW
    m = np.zeros(r[mem.CAPACITY], np.int64)
    m[mem.NONE + mem.STATE] = mem.LIVE

    lanes = r[mem.LANES] + np.arange(num_lanes) * (mem.LANE_ROWS * mem.ROW)
    half, stream = np.divmod(np.arange(num_lanes), num_streams)
    m[lanes + mem.POOL] = r[mem.POOLS] + (half // 2) * mem.ROW
    m[lanes + mem.STREAM] = stream
    m[lanes + mem.IS_SMALL] = half % 2
    for heads in (lanes, lanes + mem.HOLES, r[mem.WAITING : mem.WAITING + 1]):
        m[heads + mem.SUCC] = heads
        m[heads + mem.PRED] = heads
    pools = r[mem.POOLS] + np.arange(num_pools) * mem.ROW
    m[pools + mem.INDEX] = np.arange(num_pools)
    m[pools[1:] + mem.IS_PRIVATE] = 1
    m[pools[list(no_split)] + mem.NO_SPLIT] = 1
    m[pools[list(stand_in)] + mem.TURN] = np.arange(len(stand_in)) + 1
    m[pools[list(captured)] + mem.IS_CAPTURED] = 1
    m[r[mem.GIVEN] : r[mem.GIVEN] + len(given)] = given
    r[mem.NUM_GIVEN], r[mem.GIVEN_BY_LANE] = len(given), lane_of_given is not None
    if lane_of_given is not None:
        known_lane = (lane_of_given >= 0) & (lane_of_given < num_lanes)
        m[r[mem.GIVEN] + len(given) :][: len(given)] = np.where(known_lane, lanes[np.where(known_lane, lane_of_given, 0)], 0)

    r[mem.EXPANDABLE], r[mem.GC], r[mem.IS_LAZY] = conf.expandable, conf.gc_threshold > 0, conf.is_lazy
    r[mem.MAX_SPLIT] = mem.UNLIMITED if conf.max_split is None else conf.max_split
    r[mem.SPLIT_IS_LIMITED], r[mem.ROUNDING] = conf.max_split is not None, conf.non_split_rounding
    r[mem.SMALL_PAGE], r[mem.LARGE_PAGE], r[mem.ALIGNMENT] = conf.small_page, conf.large_page, conf.alignment
    r[mem.LIMIT], r[mem.BAR] = limits(conf.fraction, conf, capacity, rules)
    r[mem.REJECT_ABOVE] = -1
    if conf.rejects and capacity is not None:  # the setting counts, whatever the program sets later
        r[mem.REJECT_ABOVE] = int((1.0 if conf.fraction is None else conf.fraction) * capacity)
    r[mem.OWN_STREAM_COUNTS], r[mem.TIES_BY_BIRTH] = rules.own_stream_counts, rules.ties == BY_BIRTH
    r[mem.SCOPE_IS_CAPTURE], r[mem.TAKES_EXPANDABLE] = rules.scope_is_capture, rules.expandable_is_collected
    r[mem.CAPTURE_USES_COUNT], r[mem.LENDS_EXPANDABLE] = rules.capture_uses_count, rules.lends_expandable
    r[mem.LENDS_LAST], r[mem.PRIVATE_IS_EXPANDABLE] = rules.lends_last, rules.private_is_expandable
    r[mem.REUSE_NEEDS_CAPTURE] = conf.is_reused_in_capture and rules.reuse_needs_capture
    r[mem.SCOPE_END_FREES] = conf.is_reused_in_capture and rules.scope_end_frees
    r[mem.DONE], r[mem.NUM_STREAMS], r[mem.NUM_POOLS] = done, num_streams, num_pools
    r[mem.FREE_BYTES] = mem.UNLIMITED if capacity is None else capacity
    r[mem.DEVICE_BYTES] = UNKNOWN_DEVICE if capacity is None else capacity
    r[mem.MOST_RESERVED] = mem.UNLIMITED
    if conf.reserve is not None:
        r[mem.MOST_RESERVED] = conf.reserve.of(int(r[mem.DEVICE_BYTES]))
    r[mem.UNTIL] = mem.UNLIMITED
    known = given[given >= 0]
    r[mem.NEXT_ADDRESS] = max(FIRST_ADDRESS, (int(known.max()) + (1 << 42)) // GRAIN * GRAIN if len(known) else 0)
    r[mem.NEXT_PLACE] = -1 if rules.ties == BY_ADDRESS else 0
    r[mem.SEED] = 12345
    return r, m


def enlarge(r: Array, m: Array, log: Array) -> tuple[Array, Array]:
    """Returns memory and log with more room, as far as the next call may need it."""
    need = (2 * int(r[mem.NUM_ROWS]) + 64) * mem.ROW
    if r[mem.CAPACITY] - r[mem.FRESH] < need:
        more = np.zeros(int(r[mem.FRESH]) + 2 * need, np.int64)
        more[: len(m)] = m
        m = more
        r[mem.CAPACITY] = len(m)
    room = 3 * int(r[mem.NUM_ROWS]) + 64
    if r[mem.IS_LOGGED] and r[mem.LOG_CAPACITY] - r[mem.NUM_LOGGED] < room:
        wider = np.empty((len(log), 2 * log.shape[1] + 2 * room), np.int64)
        wider[:, : log.shape[1]] = log
        log = wider
        r[mem.LOG_CAPACITY] = log.shape[1]
    return m, log


def segments(r: Array, m: Array) -> Array:
    """Returns the address of every range there ever was, by number."""
    begin = r[mem.GIVEN] + -(-2 * r[mem.NUM_GIVEN] // mem.ROW) * mem.ROW
    rows = m[begin : r[mem.FRESH]].reshape(-1, mem.ROW)
    ranges = rows[rows[:, mem.STATE] == mem.A_RANGE]
    addresses: Array = ranges[np.argsort(ranges[:, mem.NUMBER]), mem.ADDRESS]
    return addresses
