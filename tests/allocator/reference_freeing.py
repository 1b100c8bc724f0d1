"""The frees of the reference allocator: complete or in two halves, with pending streams and private pools.

Its allocations are in ``reference.py``.
"""

from __future__ import annotations

from math import floor
from typing import Any

import numpy as np

from tests.allocator.reference_heap import Block, Device, Pool, Private, Settings, Undefined


class Freeing:
    """The state of an allocator, and its frees.

    Attributes:
        log: Its entries: action, segment, offset, size, stream, pool, tensor.
    """

    counts_own_stream = False

    def __init__(
        self, total: int | None, conf: str = "", version: tuple[int, int] = (2, 13), done: str = "now"
    ) -> None:
        self.settings, self.version, self.done = Settings(conf), version, done
        self.device, self.capacity = Device(total), total
        self.reject_above = (
            None if total is None or not self.settings.rejects else floor(self.settings.fraction * total)
        )
        self.set_fraction(self.settings.fraction)
        self.default = Pool(True), Pool(False)
        self.private: dict[int, Private] = {}
        self.released: dict[int, Private] = {}
        self.use_on_oom_pools: list[Private] = []
        self.scopes: list[tuple[int, int]] = []
        self.live: dict[int, Block] = {}
        self.halves: dict[int, Block] = {}  # between the two halves of a free, by tensor
        self.deferred: list[Block] = []
        self.events: list[tuple[int, int, Block]] = []  # stream, number within it, block
        self.num_issued: dict[int, int] = {}
        self.num_finished: dict[int, int] = {}
        self.reserved = self.allocated = self.active = self.requested = 0
        self.retries = self.ooms = self.device_allocs = self.device_frees = 0
        self.log: list[tuple[Any, ...]] = []

    def set_fraction(self, fraction: float) -> None:
        self.limit = None if fraction == 1.0 or self.capacity is None else floor(fraction * self.capacity)

    def merge(self, block: Block) -> None:
        """Merges a freed block with its free neighbours."""
        raise NotImplementedError

    def release_private(self, number: int) -> None:
        """Releases the memory of a private pool without users."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------------------------------- freeing

    def request_free(self, tensor: int) -> Block | None:
        block = self.live.pop(tensor, None)
        if block is not None:
            self.allocated -= block.size
            self.note("free_requested", block, block.requested, tensor)
        return block

    def free(self, tensor: int) -> bool:
        """Frees a live tensor; returns whether it was live."""
        block = self.request_free(tensor)
        if block is None:
            return False
        if self.captures and block.uses:
            self.deferred.append(block)
            return True
        self.watch(block)
        return True

    def watch(self, block: Block) -> None:
        """Records an event on each stream that uses the block; without any, its free is complete."""
        for stream in sorted(block.uses):
            self.num_issued[stream] = self.num_issued.get(stream, 0) + 1
            self.events.append((stream, self.num_issued[stream], block))
            block.num_events += 1
        block.uses = set()
        if not block.num_events:
            self.finish(block)

    def finish(self, block: Block) -> None:
        self.note("free_completed", block, block.requested, block.tensor)
        self.active -= block.size
        self.requested -= block.requested
        block.tensor, block.idle = -1, True
        self.merge(block)

    def free_requested(self, tensor: int) -> bool:
        """Executes a free as recorded: the block waits for ``free_completed``, or for a wait for all streams."""
        block = self.request_free(tensor)
        if block is not None:
            self.halves[tensor] = block
        return block is not None

    def free_completed(self, tensor: int) -> bool:
        block = self.halves.pop(tensor, None)
        if block is not None:
            self.finish(block)
        return block is not None

    def record_stream(self, tensor: int, stream: int) -> bool:
        block = self.live.get(tensor)
        if block is None:
            return False
        if stream != block.segment.stream or self.counts_own_stream:
            block.uses.add(stream)
            if self.captures:
                block.captured_uses.add(stream)
        return True

    @property
    def captures(self) -> bool:
        """Returns whether an open pool counts as a graph capture (up to 2.12), in which waiting is not allowed."""
        return self.version <= (2, 12) and bool(self.scopes)

    def watch_deferred(self) -> None:
        """Records events for blocks freed in a capture; uses within it belong to the graph."""
        deferred, self.deferred = self.deferred, []
        for block in deferred:
            block.uses -= block.captured_uses
            self.watch(block)

    def poll(self) -> None:
        """Completes frees whose events have finished; every allocation does this first.

        In each stream, it stops at the first event that is still pending.
        """
        self.watch_deferred()
        for stream in sorted({stream for stream, _, _ in self.events}):
            for event in [e for e in self.events if e[0] == stream]:
                if self.done != "now" and event[1] > self.num_finished.get(stream, 0):
                    break
                self.over(event)

    def over(self, event: tuple[int, int, Block]) -> None:
        self.events.remove(event)
        event[2].num_events -= 1
        if not event[2].num_events:
            self.finish(event[2])

    def wait(self, owner: Private | None = None) -> None:
        """Waits for the streams of all pending blocks (or of those of one private pool) and completes their frees.

        This also completes earlier work on these streams.
        """
        if self.captures:
            raise Undefined
        self.watch_deferred()
        for event in sorted(self.events, key=lambda e: e[0]):
            if owner is None or event[2].segment.pool.owner is owner:
                self.num_finished[event[0]] = max(self.num_finished.get(event[0], 0), event[1])
                self.over(event)
        for tensor, block in list(self.halves.items()):
            if owner is None or block.segment.pool.owner is owner:
                self.free_completed(tensor)

    def complete(self, stream: int) -> None:
        for s in list(self.num_issued) if stream < 0 else [stream]:
            self.num_finished[s] = self.num_issued.get(s, 0)

    # -------------------------------------------------------------------------------------------- private pools, device

    def pool_begin(self, number: int, stream: int = -1, kind: int = 0) -> None:
        if any(number == open_ for open_, _ in self.scopes):
            raise Undefined
        if number not in self.private:
            self.private[number] = Private(number, kind)
            self.use_on_oom_pools += [self.private[number]] if kind & 2 else []
        private = self.private[number]
        if not private.num_users:
            raise Undefined  # the pool was released but still has memory
        private.num_users += 1
        self.scopes.append((number, stream))

    def pool_end(self, number: int) -> None:
        at = [open_ for open_, _ in self.scopes].index(number)
        del self.scopes[at]
        self.unuse(number)

    def unuse(self, number: int) -> None:
        private = self.private[number]
        private.num_users -= 1
        if not private.num_users:
            self.released[number] = private

    def pool_release(self, number: int) -> None:
        self.use_on_oom_pools = [private for private in self.use_on_oom_pools if private.number != number]
        self.unuse(number)
        if number in self.released:
            self.wait(self.released[number])
            self.release_private(number)

    def external(self, size: int) -> None:
        self.device.others = size

    def set_total(self, size: int) -> None:
        self.device.total = size  # the limit remains that of the capacity read at the start

    @property
    def bases(self) -> dict[int, int]:
        """Returns the address of every range ever reserved, by number."""
        return dict(enumerate(self.device.bases))

    @property
    def all_bases(self) -> np.ndarray:
        return np.array(self.device.bases, np.int64)

    def note(self, action: str, block: Block, size: int, tensor: int = -1) -> None:
        segment = block.segment
        self.log.append((action, segment.number, block.off, size, segment.stream, segment.pool.number, tensor))
