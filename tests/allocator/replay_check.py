"""Verifies a replay independently, from its log alone.

It does not use the engine. It processes the log entry by entry with sets of intervals: reserved memory, and the free
part of it. It detects overlapping blocks, neighbours that were not merged (a request that ignored a sufficient merged
range), wrong sizes, curves that are not sums, counters that do not match the log, and exceeded limits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from memdiag.allocator.policies import POLICIES
from memdiag.allocator.policies.parameters import parameters
from memdiag.allocator.result import OK, OUT_OF_MEMORY, UNDEFINED, Replay
from memdiag.allocator.workload import ALLOC, EXTERNAL, SET_FRACTION, SET_TOTAL, Workload
from memdiag.trace import schema
from memdiag.units import MIB
from tests.allocator.intervals import Intervals

_GRAIN = 512
_DEVICE_PAGE = 2 * MIB
_MOST_FAULTS = 20
_CACHING = ("caching", "expandable", "npu", "npu-expandable")  # search, split and round as checked here


@dataclass
class _Range:
    lane: tuple[int, bool, int]  # pool, small, stream
    page: int  # 0: not expandable
    held: Intervals = field(default_factory=Intervals)
    free: Intervals = field(default_factory=Intervals)


@dataclass
class _Block:
    seg: int
    off: int
    size: int
    requested: int
    is_pending: bool = False


class _Checker:
    """Processes a log; ``faults`` are the errors found."""

    def __init__(self, workload: Workload, replay: Replay, *, keep_start: bool) -> None:
        self.workload, self.replay, self.keep_start = workload, replay, keep_start
        how = POLICIES[replay.policy]
        self.conf, self.rules = parameters(how, replay.conf, replay.torch_version)
        self.is_caching = replay.policy in _CACHING
        self.ranges: dict[int, _Range] = {}
        self.blocks: dict[int, _Block] = {}
        self.gaps: dict[tuple[int, bool, int], list[int]] = {}  # sizes of the free ranges, sorted
        self.addresses = Intervals()  # all reserved memory
        self.reserved = self.allocated = self.active = self.requested = self.behind = 0
        self.device_allocs = self.device_frees = self.ooms = self.others = 0
        self.limit, self.total = replay.limit_bytes, replay.capacity_bytes
        self.faults: list[str] = []
        self.call = -1
        self.lane_of_call: tuple[int, bool, int] | None = None
        self.wanted = 0  # rounded size of the current request
        self.is_searched = True  # the search of this call is over
        self.is_retried = False

    def fault(self, what: str) -> None:
        self.faults.append(f"call {self.call}: {what}")

    # -------------------------------------------------------------------------------------------------------- sizes

    def rounded(self, size: int) -> int:
        size += self.rules.pad
        division = self.conf.divisions[min(max(size.bit_length() - 21, 0), 15)]
        if division == 1 and self.rules.one_division_is_exact:
            return max(_GRAIN, size)
        if division > 1 and size > _GRAIN * division:
            step = (1 << (size.bit_length() - 1)) // division
            return -(-size // step) * step
        return max(_GRAIN, -(-size // _GRAIN) * _GRAIN)

    def device_bytes(self, size: int, page: int) -> int:
        return (
            -(-size // _DEVICE_PAGE) * _DEVICE_PAGE
            if not page
            else size // page * (-(-page // _DEVICE_PAGE) * _DEVICE_PAGE)
        )

    # -------------------------------------------------------------------------------------------------------- ranges

    def give(self, seg: int, start: int, end: int) -> None:
        """Marks ``[start, end)`` of a range as free."""
        sizes = self.gaps.setdefault(self.ranges[seg].lane, [])
        touched, joined = self.ranges[seg].free.add(start, end)
        for a, b in touched:
            del sizes[bisect_left(sizes, b - a)]
        insort(sizes, joined[1] - joined[0])

    def take(self, seg: int, start: int, end: int) -> tuple[int, int] | None:
        """Marks ``[start, end)`` of a range as used.

        Returns the free range that contained it, or None if it was not free.
        """
        found = self.ranges[seg].free.around(start, end) if seg in self.ranges else None
        if found is None:
            return None
        sizes = self.gaps[self.ranges[seg].lane]
        whole, left = self.ranges[seg].free.cut(start, end)
        del sizes[bisect_left(sizes, whole[1] - whole[0])]
        for a, b in left:
            insort(sizes, b - a)
        return whole

    def hold(self, seg: int, off: int, size: int) -> None:
        base = int(self.replay.bases[seg])
        if self.addresses.meets(base + off, base + off + size):
            self.fault(f"{size} bytes at {off} of range {seg} were held already")
            return
        self.addresses.add(base + off, base + off + size)
        self.ranges[seg].held.add(off, off + size)
        self.give(seg, off, off + size)
        self.reserved += size
        self.behind += self.device_bytes(size, self.ranges[seg].page)

    def drop(self, seg: int, off: int, size: int) -> None:
        if self.take(seg, off, off + size) is None:
            self.fault(f"{size} bytes at {off} of range {seg} were given back and were not free")
            return
        base = int(self.replay.bases[seg])
        self.addresses.cut(base + off, base + off + size)
        self.ranges[seg].held.cut(off, off + size)
        self.reserved -= size
        self.behind -= self.device_bytes(size, self.ranges[seg].page)

    # -------------------------------------------------------------------------------------------------------- start

    def load_start(self) -> None:
        start = self.workload.start
        bases = self.replay.bases.tolist()
        heads = set(start.base.tolist())
        num = 0
        while (
            num < len(bases)
            and num < len(start.base)
            and bases[num] in heads
            and (num == 0 or bases[num] > bases[num - 1])
        ):
            num += 1
        seg_of: list[int] = []
        for row in range(len(start.base)):
            seg = bisect_right(bases[:num], int(start.base[row])) - 1
            seg_of.append(seg)
            small = bool(start.small[row])
            page = (self.conf.small_page if small else self.conf.large_page) if start.expandable[row] else 0
            self.ranges.setdefault(seg, _Range((int(start.pool[row]), small, int(start.stream[row])), page))
            if start.size[row]:
                self.hold(seg, int(start.base[row]) - bases[seg], int(start.size[row]))
        for k in range(len(start.block_off)):
            row = int(start.block_range[k])
            seg = seg_of[row]
            off, size = int(start.base[row]) - bases[seg] + int(start.block_off[k]), int(start.block_size[k])
            if self.take(seg, off, off + size) is None:
                self.fault(
                    f"at the start a block of {size} bytes at {off} of range {seg} overlaps another, or lies in no "
                    "range"
                )
            block = _Block(seg, off, size, int(start.block_requested[k]), bool(start.block_pending[k]))
            self.blocks[int(start.block_tensor[k])] = block
            self.active += size
            self.requested += block.requested
            self.allocated += 0 if block.is_pending else size

    # -------------------------------------------------------------------------------------------------------- entries

    def entry(self, action: int, seg: int, off: int, size: int, stream: int, pool: int, tensor: int) -> None:
        if action not in {schema.FREE_REQUESTED, schema.FREE_COMPLETED, schema.ALLOC}:
            self.check_search(None)
        if action == schema.ALLOC:
            self.alloc(seg, off, size, tensor)
        elif action == schema.FREE_REQUESTED:
            self.free_requested(seg, off, size, tensor)
        elif action == schema.FREE_COMPLETED:
            self.free_completed(seg, off, size, tensor)
        elif action in {schema.SEGMENT_ALLOC, schema.SEGMENT_MAP}:
            self.device_allocs += 1
            self.obtain(action == schema.SEGMENT_MAP, seg, off, size, stream, pool)
        elif action in {schema.SEGMENT_FREE, schema.SEGMENT_UNMAP}:
            self.device_frees += 1
            if (
                action == schema.SEGMENT_FREE
                and seg in self.ranges
                and self.ranges[seg].held.around(off, off + size) != (off, off + size)
            ):
                self.fault(f"a part of range {seg} was freed")
            self.drop(seg, off, size)
        elif action == schema.OOM:
            self.ooms += 1

    def obtain(self, is_map: bool, seg: int, off: int, size: int, stream: int, pool: int) -> None:
        if seg not in self.ranges:
            lane = (pool, self.lane_of_call[1] if self.lane_of_call else size <= _DEVICE_PAGE, stream)
            page = (self.conf.small_page if lane[1] else self.conf.large_page) if is_map else 0
            self.ranges[seg] = _Range(lane, page)
        elif not is_map:
            self.fault(f"range {seg} was obtained twice")
        if is_map and self.ranges[seg].page and size % self.ranges[seg].page:
            self.fault(f"{size} bytes of range {seg} were mapped: no whole pages")
        self.hold(seg, off, size)
        if not is_map and self.limit is not None and self.reserved > self.limit:
            self.fault(f"{self.reserved} bytes are reserved, {self.limit} are allowed")
        if self.total is not None and self.behind + self.others > self.total:
            self.fault(f"{self.behind} bytes and {self.others} of others are more than the {self.total} of the device")

    def alloc(self, seg: int, off: int, size: int, tensor: int) -> None:
        block = int(self.replay.block[self.call]) if self.call >= 0 else self.rounded(size)
        if self.call >= 0 and (seg, off) != (int(self.replay.seg[self.call]), int(self.replay.off[self.call])):
            self.fault("the log has the block elsewhere than the row of the call")
        if self.call >= 0 and (
            tensor != int(self.workload.tensor[self.call]) or size != int(self.workload.size[self.call])
        ):
            self.fault("the log has another allocation than the workload")
        if tensor in self.blocks:
            self.fault(f"tensor {tensor} was allocated twice")
        if self.call < 0:  # no row has the size of the block; the remainder of its range shows it
            block = self.block_of_start(seg, off, block)
        piece = self.ranges[seg].free.around(off, off + block) if seg in self.ranges else None
        if piece is not None:
            self.check_search(piece[1] - piece[0])
        if piece is None or self.take(seg, off, off + block) is None:
            self.fault(f"the block at {off} of range {seg} overlaps another, or lies in no memory that is held")
            return
        self.check_piece(seg, off, block, size, piece)
        self.blocks[tensor] = _Block(seg, off, block, size)
        self.allocated += block
        self.active += block
        self.requested += size

    def block_of_start(self, seg: int, off: int, block: int) -> int:
        piece = self.ranges[seg].free.around(off, off + block) if seg in self.ranges else None
        return (
            piece[1] - off
            if piece and not self.is_split(block, self.ranges[seg].lane, piece[1] - off - block)
            else block
        )

    def is_split(self, rounded: int, lane: tuple[int, bool, int], rest: int) -> bool:
        if lane[1] or self.conf.expandable:
            return rest >= _GRAIN
        return (self.conf.max_split is None or rounded < self.conf.max_split) and rest > MIB

    def check_piece(self, seg: int, off: int, block: int, size: int, piece: tuple[int, int]) -> None:
        """Checks that the block matches the request and the free range it was split from."""
        if (block % _GRAIN and not self.rules.one_division_is_exact) or block < size:
            self.fault(f"a request for {size} bytes has a block of {block}")
        if not self.is_caching:
            return
        rounded, lane = self.rounded(size), self.ranges[seg].lane
        if self.lane_of_call is not None and lane != self.lane_of_call:
            self.fault(f"the block lies in {lane} (pool, small, stream), the request was for {self.lane_of_call}")
        align = self.conf.alignment if self.conf.expandable and rounded >= _DEVICE_PAGE else 0
        skipped = off - piece[0]
        if skipped and (not align or skipped >= align):
            self.fault(f"the block does not begin where the free piece does, at {piece[0]}")
        rest = piece[1] - off - rounded
        if block != (rounded if rest >= 0 and self.is_split(rounded, lane, rest) else rounded + max(rest, 0)):
            self.fault(f"a request for {size} bytes in a piece of {piece[1] - piece[0]} has a block of {block}")

    def check_search(self, taken: int | None) -> None:
        """Checks the search's result among the free ranges: the smallest that fits.

        Args:
            taken: The range it used, or None.
        """
        if self.is_searched or self.lane_of_call is None or not self.is_caching:
            return
        self.is_searched = True
        sizes, conf = self.gaps.get(self.lane_of_call, []), self.conf
        at = bisect_left(sizes, self.wanted)
        if at == len(sizes):
            return
        best, split = sizes[at], conf.max_split
        if taken is not None:
            if best < taken and not conf.expandable:
                self.fault(f"a piece of {taken} bytes was taken where one of {best} would do for {self.wanted}")
            return
        refused = split is not None and (
            self.wanted < split <= best or (self.wanted >= split and best >= self.wanted + conf.non_split_rounding)
        )
        # A request that waits for streams before its retry gets released memory without searching it.
        if not refused and not self.is_retried and not (conf.expandable and split is not None):
            self.fault(f"a piece of {best} bytes was passed over by a request for {self.wanted}")

    def free_requested(self, seg: int, off: int, size: int, tensor: int) -> None:
        block = self.blocks.get(tensor)
        if block is None or block.is_pending:
            self.fault(f"tensor {tensor} was freed and was not live")
            return
        if (block.seg, block.off, block.requested) != (seg, off, size):
            self.fault(f"tensor {tensor} was freed elsewhere than it lies")
        block.is_pending = True
        self.allocated -= block.size

    def free_completed(self, seg: int, off: int, size: int, tensor: int) -> None:
        block = self.blocks.pop(tensor, None)
        if block is None or not block.is_pending or (block.seg, block.off, block.requested) != (seg, off, size):
            self.fault(f"the free of tensor {tensor} ended and had not begun, or elsewhere")
            return
        self.active -= block.size
        self.requested -= block.requested
        self.give(seg, off, off + block.size)

    # -------------------------------------------------------------------------------------------------------- calls

    def begin(self, call: int) -> None:
        work, self.call = self.workload, call
        op, size = int(work.op[call]), int(work.size[call])
        self.lane_of_call, self.is_searched = None, True
        if op == ALLOC and size > 0:
            self.wanted = self.rounded(size)
            retries = int(self.replay.retries[call - 1]) if call else 0
            self.is_retried = int(self.replay.retries[call]) > retries or self.replay.status[call] == OUT_OF_MEMORY
            if work.pool[call] >= 0 or len(work.pools) == 1:
                self.lane_of_call = (max(int(work.pool[call]), 0), self.wanted <= MIB, int(work.stream[call]))
                self.is_searched = False
        elif op == SET_FRACTION and self.replay.capacity_bytes is not None:
            whole = size == 10**9 and not self.rules.whole_fraction_is_limit
            total = (
                self.total if self.rules.capacity_is_asked and self.total is not None else self.replay.capacity_bytes
            )
            self.limit = None if whole else int(size / 1e9 * total)
        elif op == EXTERNAL:
            self.others = size
        elif op == SET_TOTAL and self.total is not None:
            self.total = size

    def end(self, call: int, num_allocs: int) -> None:
        replay, status = self.replay, int(self.replay.status[call])
        is_request = self.workload.op[call] == ALLOC and self.workload.size[call] > 0
        if num_allocs != int(bool(is_request) and status == OK):
            self.fault(f"the status is {status}, and the log has {num_allocs} allocations")
        if status == OUT_OF_MEMORY and not is_request:
            self.fault("out of memory without a request")
        for name in ("reserved", "allocated", "active", "requested", "ooms", "device_allocs", "device_frees"):
            if int(getattr(replay, name)[call]) != getattr(self, name):
                self.fault(f"{name} is {int(getattr(replay, name)[call])}, the log says {getattr(self, name)}")
        more = int(replay.retries[call]) - (int(replay.retries[call - 1]) if call else 0)
        if more not in {0, int(bool(is_request))} and (call or self.keep_start):
            self.fault(f"retries rose by {more}")


def _entries(replay: Replay) -> Iterator[tuple[int, ...]]:
    log = replay.log or {}
    columns = (log[name].tolist() for name in ("call", "action", "seg", "off", "size", "stream", "pool", "tensor"))
    return zip(*columns, strict=True)


def check(workload: Workload, replay: Replay, *, keep_start: bool = True) -> tuple[str, ...]:
    """Returns the errors of a replay that kept its log, at most 20, in order.

    Args:
        workload: The replayed workload.
        replay: Result of ``replay()`` with ``log=True``.
        keep_start: As passed to ``replay()``.
    """
    checker = _Checker(workload, replay, keep_start=keep_start)
    if keep_start:
        checker.load_start()
    entries = list(_entries(replay))
    calls = np.array([entry[0] for entry in entries], np.int64)
    if (calls[1:] < calls[:-1]).any():
        checker.fault("the calls of the log are out of order")
        return tuple(checker.faults)
    at = 0
    while at < len(entries) and entries[at][0] < 0:
        checker.entry(*entries[at][1:])
        at += 1
    if not keep_start:  # counted from the first call on
        checker.device_allocs = checker.device_frees = 0
    for call in range(len(workload.op)):
        if replay.status[call] == UNDEFINED or len(checker.faults) >= _MOST_FAULTS:
            break
        checker.begin(call)
        num_allocs = 0
        while at < len(entries) and entries[at][0] == call:
            num_allocs += entries[at][1] == schema.ALLOC
            checker.entry(*entries[at][1:])
            at += 1
        checker.end(call, num_allocs)
    return tuple(checker.faults[:_MOST_FAULTS])
