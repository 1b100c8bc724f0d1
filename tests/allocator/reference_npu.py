"""The reference allocator for torch_npu: padded sizes, aligned blocks, pages of 1 GiB, late event checks."""

from __future__ import annotations

from tests.allocator.reference import Reference
from tests.allocator.reference_heap import GRAIN, MIB, Block, Pool, round_up

PAD = 32
GIB = 1 << 30
MANY_EVENTS = 512


class NpuReference(Reference):
    """torch_npu's allocator, 2.13. ``pad``: 0 on chips that do not need the 32 bytes."""

    counts_own_stream = True

    def __init__(self, total: int | None, conf: str = "", done: str = "now", pad: int = PAD) -> None:
        super().__init__(total, conf, (2, 13), done)
        values = self.settings.values
        self.pad = pad
        self.giant = values.get("page_size") == "1g"
        self.alignment = int(values.get("base_addr_aligned_kb", 16)) * 1024
        self.unit = self.settings.large
        if "segment_size_mb" in values and "large_segment_size_mb" not in values:
            self.unit = int(values["segment_size_mb"]) * MIB
        self.lazy = values.get("multi_stream_lazy_reclaim") == "True"

    def rank(self, block: Block) -> tuple[int, ...]:
        return block.size, block.segment.base, block.off

    def rounded(self, size: int) -> int:
        return super().rounded(size + self.pad)

    def segment_size(self, size: int) -> int:
        return round_up(size, GIB) if self.giant and size > self.small_limit else super().segment_size(size)

    def page(self, pool: Pool) -> int:
        if pool.small:
            return self.small_segment
        return GIB if self.giant else self.unit

    def poll(self) -> None:
        if not self.lazy or len(self.events) > MANY_EVENTS:
            super().poll()

    def search_again(self, pool: Pool, stream: int, size: int) -> Block | None:
        if not self.lazy or not self.events:
            return None
        super().poll()
        return self.search(pool, stream, size)

    def align(self, block: Block, size: int) -> Block:
        """Aligns blocks of 2 MiB and more in expandable segments; the skipped part remains free before them."""
        if not self.settings.expandable or not self.alignment or size < GRAIN:
            return block
        skip = -(block.segment.base + block.off) % self.alignment
        if not skip or skip + size > block.size:
            return block
        rest = block.segment.cut(block, skip)
        block.free_since = block.segment.pool.num_searches
        return rest

    def wait_for_stream(self, stream: int) -> None:
        """Does nothing: unmapping waits for the whole device instead."""
