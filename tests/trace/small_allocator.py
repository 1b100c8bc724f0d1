"""A simple, slow caching allocator in plain objects, which logs its actions and its state after each of them.

It follows the published behaviour of PyTorch's allocator in everything that a trace shows: rounding, best fit in pool
and stream, split, merge, frees that wait for other streams, cudaMalloc and expandable segments, private pools, retry
with an emptied cache, failure. It stores no free blocks: memory is free if it is reserved and in no block. Tests
compare memdiag's traces with it.
"""

from __future__ import annotations

from typing import Any

from tests.trace.small_allocator_state import MIB, Block, Group, Moment, Rules, Segment

PAGE = {True: 2 * MIB, False: 20 * MIB}  # by ``Group.small``


class OutOfMemory(Exception):
    """Raised when an allocation fails."""


class Allocator:
    """The allocator, its log (``entries``), and its state after each entry (``moments``)."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.segments: list[Segment] = []
        self.entries: list[dict[str, Any]] = []
        self.moments: list[Moment] = [Moment((), ())]
        # Requests that reserved memory, retried or failed: first entry, last entry, size, group.
        self.requests: list[tuple[int, int, int, Group]] = []
        self.pools: list[tuple[int, int]] = []  # active private pools, innermost last
        self.released: set[tuple[int, int]] = set()
        self.done_streams: set[int] = set()
        self.blocks: list[Block] = []  # all blocks ever allocated
        self._driver = 0x7F00_0000_0000
        self._gone: list[tuple[int, int]] = []

    # ------------------------------------------------------------------------------------------------ the log

    def _log(self, action: str, address: int, size: int, group: Group, block: Block | None = None) -> None:
        if block is not None:
            block.entries[action] = len(self.entries)
        entry = {"action": action, "addr": address, "size": size, "stream": group.stream, "pool_id": group.pool}
        if action == "oom":
            entry["device_free"] = entry.pop("addr")
        self.entries.append(entry)
        self.moments.append(self.moment())

    def moment(self) -> Moment:
        """Returns the current segments and blocks."""
        segments = [(start, end, s.group, s.expandable) for s in self.segments for start, end in s.held()]
        blocks = [(b.address, b.size, b.requested, b.pending, s.group) for s in self.segments for b in s.blocks]
        return Moment(tuple(sorted(segments, key=lambda s: s[0])), tuple(sorted(blocks, key=lambda b: b[0])))

    def reserved(self) -> int:
        """Returns the reserved bytes."""
        return sum(len(s.mapped) * s.page for s in self.segments)

    # --------------------------------------------------------------------------------------------- calls of the program

    def malloc(self, requested: int, stream: int) -> Block:
        """Allocates a block.

        Raises:
            OutOfMemory: The allocation failed even after the cache was emptied.
        """
        self._process_waits()
        first = len(self.entries)
        size = self.rules.round(requested)
        group = Group(self.pools[-1] if self.pools else (0, 0), size <= MIB, stream)
        found = self._search(group, size)
        if found is None:
            first = len(self.entries)
            found = self._grow(group, size)
            if found is None:
                self.empty_cache()
                found = self._grow(group, size)
            if found is None:
                self._log("oom", self.rules.capacity - self.reserved(), size, group)
                self.requests.append((first, len(self.entries) - 1, size, group))
                raise OutOfMemory
        segment, start, end = found
        block = Block(start, self._split(group, size, end - start), requested, stream, group=group)
        segment.blocks.append(block)
        self.blocks.append(block)
        self._log("alloc", start, requested, group, block)
        if len(self.entries) - 1 > first:
            self.requests.append((first, len(self.entries) - 1, size, group))
        return block

    def free(self, block: Block) -> None:
        """Frees a block, at once or when the streams that use it are done."""
        block.pending = True
        self._log("free_requested", block.address, block.requested, self._segment_of(block).group, block)
        if not block.uses:
            self._complete(block)

    def record_stream(self, block: Block, stream: int) -> None:
        """Marks a block as used by another stream."""
        if stream != block.stream:
            block.uses.add(stream)

    def finish(self, stream: int) -> None:
        """Completes the work of a stream; the next malloc notices it."""
        self.done_streams.add(stream)

    def begin_pool(self, number: int) -> None:
        """Directs the following requests to a private pool."""
        self.released.discard((0, number))
        self.pools.append((0, number))

    def end_pool(self, *, release: bool) -> None:
        """Ends the use of the innermost private pool."""
        if self.pools:
            pool = self.pools.pop()
            if release and pool not in self.pools:
                self.released.add(pool)

    # ------------------------------------------------------------------------------------------------ internals

    def _segment_of(self, block: Block) -> Segment:
        return next(s for s in self.segments if any(b is block for b in s.blocks))

    def _complete(self, block: Block) -> None:
        segment = self._segment_of(block)
        segment.blocks = [b for b in segment.blocks if b is not block]
        self._log("free_completed", block.address, block.requested, segment.group, block)

    def _process_waits(self, *, everything: bool = False) -> None:
        for block in [b for s in self.segments for b in s.blocks if b.pending]:
            block.uses -= self.done_streams
            if everything or not block.uses:
                self._complete(block)
        self.done_streams.clear()

    def _search(self, group: Group, size: int) -> tuple[Segment, int, int] | None:
        rules = self.rules
        fits = []
        for segment in self.segments:
            if segment.group == group and segment.expandable == rules.expandable:
                fits += [(end - start, start, end, segment) for start, end in segment.free() if end - start >= size]
        if not fits:
            return None
        length, start, end, segment = min(fits, key=lambda fit: fit[:2])
        limit = rules.max_split
        if (
            limit is not None
            and not group.small
            and ((size < limit <= length) or (size >= limit and length >= size + 20 * MIB))
        ):
            return None
        return segment, start, end

    def _split(self, group: Group, size: int, length: int) -> int:
        """Returns the size of the block that a request of ``size`` gets from a free range."""
        rest = length - size
        if group.small or self.rules.expandable:
            return size if rest >= 512 else length
        splits = rest > MIB and (self.rules.max_split is None or size < self.rules.max_split)
        return size if splits else length

    def _grow(self, group: Group, size: int) -> tuple[Segment, int, int] | None:
        if self.rules.expandable:
            return self._grow_expandable(group, size)
        length = 2 * MIB if group.small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        if self.reserved() + length > self.rules.capacity:
            return None
        segment = Segment(self._addresses(length), length, 1, {0}, group, expandable=False)
        self.segments.append(segment)
        self._log("segment_alloc", segment.address, length, group)
        return segment, segment.address, segment.address + length

    def _addresses(self, length: int) -> int:
        if self.rules.reuse_addresses:
            for at, (start, size) in enumerate(self._gone):
                if size >= length:
                    self._gone[at] = start + length, size - length
                    return start
        self._driver += length + 2 * MIB
        return self._driver - length

    def _grow_expandable(self, group: Group, size: int) -> tuple[Segment, int, int] | None:
        page = PAGE[group.small]
        for segment in [s for s in self.segments if s.group == group and s.expandable]:
            start = self._room(segment, size)
            if start is not None:
                break
        else:
            pages = -(-(self.rules.capacity * 9 // 8) // page)
            segment = Segment(self._addresses(pages * page), page, pages, set(), group, expandable=True)
            start = segment.address
            if pages * page < size:
                return None
            self.segments.append(segment)
        while True:
            end = next((e for s, e in segment.free() if s <= start < e), start)
            if end - start >= size:
                return segment, start, end
            first = (end - segment.address) // page
            wanted = -(-(size - (end - start)) // page)
            last = first
            while last < segment.pages and last - first < wanted and last not in segment.mapped:
                last += 1
            if self.reserved() + (last - first) * page > self.rules.capacity:
                self._forget_unmapped()
                return None
            segment.mapped |= set(range(first, last))
            self._log("segment_map", segment.address + first * page, (last - first) * page, group)

    def _room(self, segment: Segment, size: int) -> int | None:
        """Returns where ``size`` contiguous bytes begin that are free or not mapped yet, or None."""
        end_of_all = segment.address + segment.pages * segment.page
        starts = [s for s, _ in segment.free()] + [end for _, end in segment.held()]
        starts += [] if 0 in segment.mapped else [segment.address]
        for start in sorted(starts):
            next_block = min((b.address for b in segment.blocks if b.address >= start), default=end_of_all)
            if next_block - start >= size:
                return start
        return None

    def empty_cache(self) -> None:
        """Releases the cached memory."""
        self._process_waits(everything=True)
        for segment in list(self.segments):
            if segment.group.pool != (0, 0) and segment.group.pool not in self.released:
                continue
            if not segment.expandable and not segment.blocks:
                self.segments.remove(segment)
                self._gone.append((segment.address, segment.page))
                self._log("segment_free", segment.address, segment.page, segment.group)
        for segment in list(self.segments):
            if not segment.expandable or (segment.group.pool != (0, 0) and segment.group.pool not in self.released):
                continue
            for start, end in segment.free():
                first = -(-(start - segment.address) // segment.page)
                last = (end - segment.address) // segment.page
                if last > first:
                    segment.mapped -= set(range(first, last))
                    self._log(
                        "segment_unmap",
                        segment.address + first * segment.page,
                        (last - first) * segment.page,
                        segment.group,
                    )
        self._forget_unmapped()

    def _forget_unmapped(self) -> None:
        for segment in [s for s in self.segments if not s.mapped]:
            self.segments.remove(segment)
            self._gone.append((segment.address, segment.pages * segment.page))

    # ------------------------------------------------------------------------------------------------ snapshot

    def snapshot(self, *, since: int = 0, pool_ids: bool = True, segments: bool = True) -> dict[str, Any]:
        """Returns a snapshot in PyTorch's form (torch_npu's if there is a pad), with the entries from ``since`` on."""
        npu = self.rules.pad > 0
        frames = [{"filename": "torch_npu/npu/memory.py" if npu else "train.py", "line": 7, "name": "f"}]
        rows = []
        state = self.moment()
        for start, end, group, expandable in state.segments:
            inside = [b for b in state.blocks if start <= b[0] < end]
            blocks = [
                (address, size, requested, "active_pending_free" if pending else "active_allocated")
                for address, size, requested, pending, _ in inside
            ]
            at = start
            for address, size, _, _, _ in inside:
                if address > at:
                    blocks.append((at, address - at, 0, "inactive"))
                at = address + size
            if at < end:
                blocks.append((at, end - at, 0, "inactive"))
            allocated = sum(size for _, size, _, what in blocks if what == "active_allocated")
            rows.append(
                {
                    "device": 0,
                    "address": start,
                    "total_size": end - start,
                    "allocated_size": allocated,
                    "active_size": sum(size for _, size, _, what in blocks if what != "inactive"),
                    "requested_size": sum(requested for _, _, requested, what in blocks if what != "inactive"),
                    "stream": group.stream,
                    "segment_type": "small" if group.small else "large",
                    "segment_pool_id": group.pool,
                    "is_expandable": expandable,
                    "frames": frames,
                    "blocks": [
                        {"address": address, "size": size, "requested_size": requested, "state": what, "frames": []}
                        for address, size, requested, what in sorted(blocks)
                    ],
                }
            )
        entries = []
        for number, entry in enumerate(self.entries[since:]):
            row = {key: value for key, value in entry.items() if key != "pool_id" or pool_ids}
            row["frames"] = frames
            if not npu:
                row["time_us"] = 1_700_000_000_000_000 + 7 * (since + number)
            entries.append(row)
        limit = self.rules.max_split
        conf = f"expandable_segments:{self.rules.expandable}"
        conf += f",roundup_power2_divisions:{self.rules.divisions}" if self.rules.divisions else ""
        settings = {
            "PYTORCH_CUDA_ALLOC_CONF": conf,
            "max_split_size": -1 if limit is None else limit,
            "expandable_segments": self.rules.expandable,
            "roundup_power2_divisions": {str(1 << k): self.rules.divisions for k in range(16)},
        }
        made: dict[str, Any] = {"device_traces": [entries]}
        if not npu:
            made["allocator_settings"] = settings
        if segments:
            made["segments"] = rows
        return made
