"""Creates an allocator model, runs the calls of a workload, and returns the columns of a replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from memdiag.allocator.engine.driver import GRAIN
from memdiag.allocator.engine.loop import Calls, Own
from memdiag.allocator.engine.memory import (
    A_SEGMENT,
    AS_RECORDED,
    BY_HAND,
    BY_NEXT_CALL,
    LIVE,
    LOG_ALL,
    LOG_COLUMNS,
    LOG_NOTHING,
    LOG_SEGMENTS,
    NODE,
    NONE,
    STATE,
    UNLIMITED,
    UNMAPPED_SET,
    Nodes,
    State,
    more_nodes,
    new_record,
)
from memdiag.allocator.engine.start import load_start
from memdiag.allocator.use_on_oom_pools import turns_of
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import BY_ADDRESS, BY_BIRTH, Rules
from memdiag.allocator.workload import SET_FRACTION, SET_TOTAL, Workload
from memdiag.trace.table import Array

FIRST_ADDRESS = 1 << 44  # of ranges whose address is unknown
UNKNOWN_DEVICE = 1 << 40  # device size for reserving address space if the real size is unknown
_ROOM = 4096  # nodes
STREAMS_FINISH = {"now": BY_NEXT_CALL, "manual": BY_HAND, "recorded": AS_RECORDED}  # by ``Workload.done``
LOG_CALL = LOG_COLUMNS.index("call")
# Rows of the results, under the names of the columns of ``Replay``.
RESULTS: tuple[str, ...] = (
    "status",
    "seg",
    "off",
    "block",
    "reserved",
    "allocated",
    "active",
    "requested",
    "retries",
    "ooms",
    "device_allocs",
    "device_frees",
)
_COUNTERS = ("retries", "device_allocs", "device_frees")
_NARROWER = {
    "status": np.int8,
    "seg": np.int32,
    "retries": np.int32,
    "ooms": np.int32,
    "device_allocs": np.int32,
    "device_frees": np.int32,
}


def limits(fraction: float | None, conf: Conf, capacity: int | None, rules: Rules) -> tuple[int, int]:
    """Returns the memory limit of a fraction (-1: none), and the reserved bytes above which garbage collection runs."""
    if fraction is None or capacity is None or (fraction == 1.0 and not rules.whole_fraction_is_limit):
        return -1, 0
    limit = int(fraction * capacity)
    return limit, int(conf.gc_threshold * limit)


@dataclass(frozen=True)
class Setup:
    """Everything but the calls that a model needs.

    Attributes:
        conf, rules: Settings, and the rules of the version.
        capacity: Bytes of the device; None: unlimited.
        fraction: Memory fraction set before the first call; None: as the settings say.
        log_level: Entries to log (``memory.LOG_ALL`` ...).
        num_own_pools: Additional pools of the policy.
        num_own_results: Additional rows of results of the policy.
    """

    conf: Conf
    rules: Rules
    capacity: int | None = None
    fraction: float | None = None
    log_level: int = LOG_NOTHING
    num_own_pools: int = 0
    num_own_results: int = 0


def new_state(workload: Workload, setup: Setup, given: Array) -> tuple[State, Nodes]:
    """Returns state and nodes of an empty allocator.

    Args:
        workload: Its streams and pools.
        setup: Settings and device.
        given: Addresses of future segments in order (-1: unknown), or two rows: these, and the lane number of each.
    """
    conf, rules, capacity = setup.conf, setup.rules, setup.capacity
    num_streams, num_pools = max(len(workload.streams), 1), len(workload.pools) + setup.num_own_pools
    stand_in = turns_of(workload)
    state = new_record(STATE)
    num_lanes = num_pools * 2 * num_streams
    given, lane_of_given = given if given.ndim == 2 else (given, None)
    state.lanes = 1  # the first node is none
    state.pools = state.lanes + 2 * num_lanes
    state.streams = state.pools + num_pools
    state.waiting = state.streams + num_streams
    state.given = state.waiting + 1
    state.fresh = state.given + len(given)
    state.capacity = state.fresh + _ROOM
    nodes = np.zeros(state.capacity, NODE)
    nodes[NONE].kind = LIVE

    lanes = state.lanes + 2 * np.arange(num_lanes)
    half, stream = np.divmod(np.arange(num_lanes), num_streams)
    nodes["pool"][lanes] = state.pools + half // 2
    nodes["stream"][lanes] = stream
    nodes["is_small"][lanes] = half % 2
    for heads in (lanes, lanes + UNMAPPED_SET, np.array([state.waiting])):
        nodes["succ"][heads] = heads
        nodes["pred"][heads] = heads
    pools = nodes[state.pools : state.pools + num_pools]
    pools["index"] = np.arange(num_pools)
    pools["is_private"][1:] = 1
    pools["no_split"][list(workload.no_split)] = 1
    pools["use_on_oom_turn"][list(stand_in)] = np.arange(len(stand_in)) + 1
    pools["is_captured"][list(workload.captured)] = 1
    known_addresses = nodes[state.given : state.fresh]
    known_addresses["address"] = given
    state.num_given, state.given_by_lane = len(given), lane_of_given is not None
    if lane_of_given is not None:
        is_known = (lane_of_given >= 0) & (lane_of_given < num_lanes)
        known_addresses["lane"] = np.where(is_known, lanes[np.where(is_known, lane_of_given, 0)], NONE)

    state.expandable, state.gc, state.is_lazy = conf.expandable, conf.gc_threshold > 0, conf.is_lazy
    state.max_split_size = UNLIMITED if conf.max_split is None else conf.max_split
    state.split_is_limited, state.max_non_split_rounding = conf.max_split is not None, conf.non_split_rounding
    state.small_page, state.large_page, state.alignment = conf.small_page, conf.large_page, conf.alignment
    state.limit, state.gc_begins_at = limits(conf.fraction, conf, capacity, rules)
    state.reject_above = -1
    if conf.rejects and capacity is not None:  # the setting counts, even if the program sets another one
        state.reject_above = int((1.0 if conf.fraction is None else conf.fraction) * capacity)
    state.own_stream_counts, state.ties_by_birth = rules.own_stream_counts, rules.ties == BY_BIRTH
    state.scope_is_capture, state.collects_expandable = rules.scope_is_capture, rules.expandable_is_collected
    state.capture_uses_count, state.use_on_oom_expandable = rules.capture_uses_count, rules.use_on_oom_expandable
    state.use_on_oom_last, state.private_is_expandable = rules.use_on_oom_last, rules.private_is_expandable
    state.reuse_needs_capture = conf.is_reused_in_capture and rules.reuse_needs_capture
    state.scope_end_frees = conf.is_reused_in_capture and rules.scope_end_frees
    state.streams_finish = STREAMS_FINISH[workload.done]
    state.num_streams, state.num_pools = num_streams, num_pools
    state.device_free = UNLIMITED if capacity is None else capacity
    state.device_total = UNKNOWN_DEVICE if capacity is None else capacity
    state.most_reserved = UNLIMITED
    if conf.reserve is not None:
        state.most_reserved = conf.reserve.of(int(state.device_total))
    state.until = UNLIMITED
    known = given[given >= 0]
    state.next_address = max(FIRST_ADDRESS, (int(known.max()) + (1 << 42)) // GRAIN * GRAIN if len(known) else 0)
    state.next_place = -1 if rules.ties == BY_ADDRESS else 0
    state.seed = 12345
    return state, nodes


def enlarge(state: State, nodes: Nodes, log: Array) -> tuple[Nodes, Array]:
    """Returns nodes and log, enlarged for the next call."""
    need = 2 * int(state.num_nodes) + 64
    if state.capacity - state.fresh < need:
        nodes = more_nodes(nodes, int(state.fresh) + 2 * need)
        state.capacity = len(nodes)
    room = 3 * int(state.num_nodes) + 64
    if state.log_level and state.log_capacity - state.num_logged < room:
        wider = np.empty((len(log), 2 * log.shape[1] + 2 * room), np.int64)
        wider[:, : log.shape[1]] = log
        log = wider
        state.log_capacity = log.shape[1]
    return nodes, log


def segments(state: State, nodes: Nodes) -> Array:
    """Returns the nodes of all segments, including released ones, by number."""
    begin = state.given + state.num_given
    found = begin + np.flatnonzero(nodes["kind"][begin : state.fresh] == A_SEGMENT)
    order: Array = found[np.argsort(nodes["number"][found])]
    return order


@dataclass
class Model:
    """An allocator model for one workload: its state, and the inputs and results of the loop over the calls.

    Attributes:
        state, nodes: See ``memory``.
        log: The log, LOG_COLUMNS x capacity.
        out: The results, (RESULTS and the policy's results) x calls.
        calls: The calls of the program.
        blocks: Block of each tensor.
        first: Number of leading calls that recreate the allocator state at the start.
        limit: Bytes that the process may reserve at the start; -1: no limit.
    """

    state: State
    nodes: Nodes
    log: Array
    out: Array
    calls: Calls
    blocks: Array
    first: int
    limit: int

    @classmethod
    def of(
        cls,
        workload: Workload,
        setup: Setup,
        sizes: tuple[Array, Array],
        pool: Array,
        *,
        first: int = 0,
        bases: Array | None = None,
    ) -> Model:
        """Creates a model with the initial state of ``workload``.

        Args:
            workload: The calls.
            setup: Settings, device and additional room.
            sizes: For each request, bytes of the block and of the segment.
            pool: For each call, its pool.
            first: Number of leading calls that recreate the initial state.
            bases: Recorded addresses of the driver's ranges (see ``Beginning``).
        """
        conf, rules, capacity = setup.conf, setup.rules, setup.capacity
        num_calls = len(workload.op)
        size, rounded = workload.size.astype(np.int64), sizes[0].astype(np.int64)
        total = capacity
        for i in np.flatnonzero((workload.op == SET_FRACTION) | (workload.op == SET_TOTAL)).tolist():
            if workload.op[i] == SET_FRACTION:
                size[i], rounded[i] = limits(size[i] / 1e9, conf, total, rules)
            elif rules.capacity_is_asked and capacity is not None:
                total = int(size[i])
        given = np.empty(0, np.int64) if bases is None else bases.astype(np.int64)
        state, nodes = new_state(workload, setup, given)
        if setup.fraction is not None:
            state.limit, state.gc_begins_at = limits(setup.fraction, conf, capacity, rules)
        blocks = np.zeros(max(workload.num_tensors, 1), np.int64)
        if len(workload.start.base):
            nodes = load_start(state, nodes, blocks, workload.start, rules.ties)
        room = {LOG_NOTHING: 0, LOG_SEGMENTS: 4096, LOG_ALL: 4 * num_calls}[setup.log_level]
        state.log_level, state.log_capacity = setup.log_level, room
        columns = (workload.op, workload.tensor, size, workload.stream, pool, rounded, sizes[1])
        return cls(
            state=state,
            nodes=nodes,
            log=np.empty((len(LOG_COLUMNS), room), np.int64),
            out=np.empty((len(RESULTS) + setup.num_own_results, num_calls), np.int64),
            calls=Calls(*(column.astype(np.int64) for column in columns)),
            blocks=blocks,
            first=first,
            limit=int(state.limit),
        )

    def run(self, loop: Any, own: Own = (), *, until: int | None = None, grow: Callable[[], Own] | None = None) -> None:
        """Runs all calls, or those before ``until``, with a loop of ``loop_of``.

        Args:
            loop: The compiled loop.
            own: Additional state of the policy.
            until: The call before which to stop; None: the end.
            grow: Returns ``own``, enlarged for the next call.
        """
        end = len(self.calls.op) if until is None else until
        self.state.until = end
        while loop(self.state, self.nodes, self.log, self.out, self.calls, self.blocks, own) < end:
            self.nodes, self.log = enlarge(self.state, self.nodes, self.log)
            own = grow() if grow else own

    def entries(self) -> dict[str, Array]:
        """Returns the log as columns; entries of calls that recreate the initial state have call -1."""
        entries = self.log[:, : self.state.num_logged]
        entries[LOG_CALL] = np.maximum(entries[LOG_CALL] - self.first, -1)
        return dict(zip(LOG_COLUMNS, entries, strict=True))

    def columns(self) -> dict[str, Any]:
        """Returns the columns of a ``Replay``, its addresses and its log, without the leading ``first`` calls.

        Counters start after these calls, which recreate the initial state. ``ooms`` includes them, because a failed
        request among them means that the initial state does not fit.
        """
        found: dict[str, Any] = {}
        for name, row in zip(RESULTS, self.out, strict=False):
            column = row[self.first :]
            if name in _COUNTERS and self.first:
                column = column - row[self.first - 1]
            found[name] = column.astype(_NARROWER.get(name, np.int64), copy=False)
        found["bases"] = self.nodes["address"][segments(self.state, self.nodes)]
        found["log"] = self.entries() if self.state.log_level == LOG_ALL else None
        found["limit_bytes"] = self.limit if self.limit >= 0 else None
        return found
