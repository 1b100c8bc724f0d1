"""A slow, simple caching allocator in plain objects: the reference for the engine.

It was written from the published behaviour of PyTorch's CUDACachingAllocator, and is itself compared with recorded rows
of the real one. It shares nothing with the package, so the same mistake cannot be on both sides: it even parses the
(valid) settings itself.
"""

from __future__ import annotations

from math import floor

from tests.allocator.reference_freeing import Freeing
from tests.allocator.reference_heap import MIB, NO_LIMIT, Block, OutOfMemory, Pool, Segment, Undefined, round_up


class Reference(Freeing):
    """PyTorch's allocator for CUDA; ``version`` from 2.11 on."""

    small_limit, small_segment, medium_limit = MIB, 2 * MIB, 10 * MIB

    # -------------------------------------------------------------------------------------------------------- sizes

    def rounded(self, size: int) -> int:
        d = self.settings.divisions[min(max(size.bit_length() - 1 - 20, 0), 15)]
        if d > 1 and size > 512 * d:
            return round_up(size, (1 << (size.bit_length() - 1)) // d)
        return max(512, round_up(size, 512))

    def segment_size(self, size: int) -> int:
        if size <= self.small_limit:
            return self.small_segment
        return self.settings.large if size < self.medium_limit else round_up(size, 2 * MIB)

    # ------------------------------------------------------------------------------------------------------- allocating

    def alloc(self, tensor: int, requested: int, stream: int = 0, pool: int | None = None) -> Block | None:
        """Returns the block of ``tensor``, or None for a request of 0 bytes.

        Raises:
            OutOfMemory: There is none; Undefined: see its docstring.
        """
        if not requested:
            return None
        if not self.captures:
            self.poll()
        size = self.rounded(requested)
        home = self.home(stream, pool)[0 if size <= self.small_limit else 1]
        block = (
            self.search(home, stream, size) or self.search_again(home, stream, size) or self.obtain(home, stream, size)
        )
        block = self.align(block, size)
        owner = block.segment.pool.owner
        rest = 0 if owner is not None and owner.kind & 1 else block.size - size
        if rest >= 512 if home.small or self.settings.expandable else size < self.settings.max_split and rest > MIB:
            remainder = block.segment.cut(block, size)
            block.made, remainder.made = remainder.made, block.made  # the allocated part is the new object
            remainder.free_since = home.num_searches
        block.tensor, block.requested, block.idle = tensor, requested, False
        self.live[tensor] = block
        self.allocated += block.size
        self.active += block.size
        self.requested += requested
        self.note("alloc", block, requested, tensor)
        return block

    def align(self, block: Block, size: int) -> Block:  # noqa: ARG002 - torch_npu does
        return block

    def search_again(self, pool: Pool, stream: int, size: int) -> Block | None:  # noqa: ARG002 - torch_npu does
        return None

    def home(self, stream: int, pool: int | None) -> tuple[Pool, Pool]:
        if pool is None:
            pool = next((number for number, only in reversed(self.scopes) if only in {-1, stream}), 0)
        return self.private[pool].pools if pool else self.default

    def rank(self, block: Block) -> tuple[int, ...]:
        """Returns the sort key of free blocks of one pool and stream."""
        segment = block.segment
        if self.version <= (2, 11):
            return block.size, segment.base, block.off
        if self.version == (2, 12):
            return block.size, block.made
        return block.size, segment.number, segment.base, block.off

    def in_order(self, pool: Pool) -> list[Block]:
        return sorted(pool.free(), key=lambda b: (b.segment.stream, self.rank(b)))

    @property
    def collects(self) -> bool:
        return self.limit is not None and self.settings.gc > 0

    def search(self, pool: Pool, stream: int, size: int) -> Block | None:
        if self.collects:
            pool.num_searches += 1
        found = sorted((b for b in pool.free(stream) if b.size >= size), key=self.rank)
        if self.settings.expandable:
            while len(found) > 1 and found[0].segment.page and found[1].room < found[0].room:
                del found[0]
        else:
            found = [b for b in found if not b.segment.page]
        if not found:
            return None
        split = self.settings.max_split
        if size < split <= found[0].size or (size >= split and found[0].size >= size + self.settings.rounding):
            return None  # the allocator tries no other block
        return found[0]

    def obtain(self, pool: Pool, stream: int, size: int) -> Block:
        """Returns a block after an unsuccessful search: garbage collection, new segment, loans, releases, retry.

        It does not search the free blocks again, even after a release.
        """
        if self.collects:
            self.collect_garbage()
        block = self.new(pool, stream, size) or self.borrow(pool, stream, size)
        if block is None and self.release_oversize(pool, stream, size):
            block = self.new(pool, stream, size)
        if block is None and not self.captures:
            self.empty_cache()
            self.retries += 1
            block = self.new(pool, stream, size)
        if block is None:
            self.ooms += 1
            self.log.append(("oom", -1, max(0, self.device.spare), size, stream, pool.number, -1))
            raise OutOfMemory
        return block

    def borrow(self, pool: Pool, stream: int, size: int) -> Block | None:
        """Returns a free block of a lending private pool; the allocator opens a scope of each to search it."""
        use_on_oom_pools = self.use_on_oom_pools if pool.owner is None else []
        for private in sorted(use_on_oom_pools, key=lambda private: private.number * 0.6180339887498949 % 1):
            if not private.num_users or any(number == private.number for number, _ in self.scopes):
                raise Undefined
            block = (
                None if self.settings.expandable else self.search(private.pools[0 if pool.small else 1], stream, size)
            )
            if block is not None:
                return block
        return None

    def new(self, pool: Pool, stream: int, size: int) -> Block | None:
        wanted = self.segment_size(size)
        if self.limit is not None and self.reserved + wanted > self.limit:
            return None
        if self.reject_above is not None and self.reserved + wanted > self.reject_above:
            raise OutOfMemory  # fails at once, and does not count as an OOM
        block = self.grow(pool, stream, size) if self.settings.expandable else self.malloc(pool, stream, wanted)
        if block is not None and pool.owner is not None:
            pool.owner.count += 1  # counts once, even if several ranges were mapped
        return block

    def malloc(self, pool: Pool, stream: int, size: int) -> Block | None:
        if not self.device.take(size):
            return None
        segment = self.device.range(pool, stream, size, 0)
        block = Block(segment, 0, size)
        segment.blocks.append(block)
        pool.segments.append(segment)
        self.reserved += size
        self.device_allocs += 1
        self.note("segment_alloc", block, size)
        return block

    # ---------------------------------------------------------------------------------------------- expandable segments

    def page(self, pool: Pool) -> int:
        return self.small_segment if pool.small else self.settings.large

    def grow(self, pool: Pool, stream: int, size: int) -> Block | None:
        block = next((start for gap in pool.gaps(stream) if (start := self.holds(gap, size)) is not None), None)
        if block is None:
            page, total = self.page(pool), NO_LIMIT >> 2 if self.device.total is None else self.device.total
            segment = self.device.range(pool, stream, round_up(total + total // 8, page), page)
            block = Block(segment, 0, segment.size, mapped=False)
            segment.blocks.append(block)
            pool.segments.append(segment)
        if not block.mapped and not self.map(block, min(block.size, size)):
            return None
        while block.size < size:
            after = block.neighbour(1)
            if after is None or not self.map(after, min(after.size, size - block.size)):
                return None
            block = after
        return block

    def holds(self, gap: Block, size: int) -> Block | None:
        """Returns the block from which the request fits: the gap, or the free block right before it."""
        before = gap.neighbour(-1)
        start = before if before is not None and before.idle else gap
        got, block = 0, start
        while block is not None and block.idle and got < size:
            got += block.size
            block = block.neighbour(1)
        return start if got >= size else None

    def map(self, gap: Block, need: int) -> bool:
        size = round_up(need, gap.segment.page)
        if not self.device.take(size, gap.segment.page):
            return False
        if size < gap.size:
            gap.segment.cut(gap, size)
        gap.mapped = True
        self.note("segment_map", gap, size)
        self.merge(gap)
        self.reserved += size
        self.device_allocs += 1
        return True

    def unmap(self, block: Block) -> None:
        """Releases the whole pages within a free block."""
        segment = block.segment
        first, last = round_up(block.off, segment.page), (block.off + block.size) // segment.page * segment.page
        if first >= last:
            return
        since = segment.pool.num_searches
        if first > block.off:
            block.free_since = since
            head, block = block, segment.cut(block, first - block.off)
            head.made, block.made = block.made, head.made
        if last < block.off + block.size:
            segment.cut(block, last - block.off).free_since = since
        size, block.mapped = block.size, False
        self.note("segment_unmap", block, size)
        self.wait_for_stream(segment.stream)
        self.merge(block)
        self.returned(segment, size)
        if block.whole:
            segment.pool.segments.remove(segment)

    def wait_for_stream(self, stream: int) -> None:
        self.complete(stream)

    # -------------------------------------------------------------------------------------------------------- releasing

    def returned(self, segment: Segment, size: int) -> None:
        self.reserved -= size
        self.device.give_back(size, segment.page)
        owner = segment.pool.owner
        if owner is not None:
            if not owner.count:
                raise Undefined
            owner.count -= 1
        self.device_frees += 1

    def merge(self, block: Block) -> None:
        """Merges a block with its free or unmapped neighbours of the same kind; the result is free from now on."""
        blocks = block.segment.blocks
        for step in (-1, 1):
            other = block.neighbour(step)
            if other is not None and other.idle and other.mapped == block.mapped:
                blocks.remove(other)
                block.off = min(block.off, other.off)
                block.size += other.size
        block.free_since = block.segment.pool.num_searches

    def drop(self, block: Block) -> None:
        # with pages of 1 GiB, a block above max_split_size_mb may be a remainder, which the driver refuses to free
        if not block.whole:
            raise Undefined
        self.note("segment_free", block, block.size)
        block.segment.pool.segments.remove(block.segment)
        self.returned(block.segment, block.size)

    def release(self, pool: Pool) -> None:
        free = self.in_order(pool)
        for block in free:
            if not block.segment.page and block.whole:
                self.drop(block)
        for block in free:
            if block.segment.page:
                self.unmap(block)

    def empty_cache(self) -> None:
        self.wait()
        small, large = self.default
        self.release(large)
        self.release(small)
        for number in list(self.released):
            self.release_private(number)

    def release_private(self, number: int) -> None:
        private = self.released[number]
        for pool in private.pools:
            self.release(pool)
        if not private.count:
            del self.released[number], self.private[number]
            if any(block.mapped for pool in private.pools for segment in pool.segments for block in segment.blocks):
                raise Undefined  # a deleted pool whose blocks still exist

    def release_oversize(self, pool: Pool, stream: int, size: int) -> bool:
        split = self.settings.max_split
        if split == NO_LIMIT:
            return False
        wanted = max(size, split)
        free = sorted(pool.free(stream), key=self.rank)
        fitting = [b for b in free if b.size >= wanted]
        if fitting and not fitting[0].segment.page:
            self.drop(fitting[0])
            return True
        got = 0
        for block in reversed(free):
            if got >= wanted or block.size < split:
                break
            if not block.segment.page:
                got += block.size
                self.drop(block)
        return got >= wanted

    def collect_garbage(self) -> None:
        pool = self.default[1]
        target = self.reserved - floor(self.settings.gc * self.limit)
        if target <= 0:
            return

        def age(block: Block) -> int:
            return pool.num_searches - block.free_since

        whole = [b for b in pool.free() if b.whole]
        ages, count, got, freed = float(sum(map(age, whole))), len(whole), 0, True
        while got < target and freed and count:
            mean, freed = ages / count, False
            for block in self.in_order(pool):
                if block.whole and not block.segment.page and age(block) >= mean:
                    got, freed, ages, count = got + block.size, True, ages - age(block), count - 1
                    self.drop(block)
