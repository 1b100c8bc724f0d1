"""Results of lifetime-segregated pools: predicted and actual lifetimes, cost of mistakes, and use of each pool."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.allocator.engine.memory import LOG_COLUMNS
from memdiag.allocator.engine.model import RESULTS, Model
from memdiag.allocator.policies.lifecycle import pools
from memdiag.allocator.policies.lifecycle.detail import LifetimePools, Misfiled, PoolState
from memdiag.allocator.policies.lifecycle.marks import HookMarks, HookWindows
from memdiag.allocator.policies.lifecycle.pools import of_segments
from memdiag.allocator.result import OK
from memdiag.trace import schema
from memdiag.trace.table import Array

WINDOWS: tuple[str, ...] = ("outside", "precise", "forward", "step")


@dataclass(frozen=True)
class Lifecycle:
    """Results in addition to a ``Replay``. Tensors are successful allocations; those of the start have call -1.

    Attributes:
        marks: The marks that the replay used.
        level: Per call, the level at which an allocation found memory (``levels``: 1 to 5; 6: not found); -1: not an
            allocation.
        is_long: Per call, whether an allocation was classified as long-lived (bool).
        call, death: Per tensor: the calls that allocate and free it; the number of calls if it is not freed (int64).
        block: Size of its block.
        seg: Number of its segment.
        thought_long, survives: Whether it was classified as long-lived; whether it was still live when its window ended
            (bool).
        window: Index into ``WINDOWS``: the window of its allocation (int8).
        change_call, change_seg, change_bytes: Reserved (bytes > 0) and released segments, in order: the call (-1: for
            tensors from before the start), the segment, the bytes.
        segment_pool: Per segment, index into ``pools.NAMES`` (int8).
        opened_by: Per segment, row of the tensor for which it was reserved; -1: a request that failed nevertheless.
        peak_call: The first call after which the reserved bytes are at their peak; -1: the start.
    """

    marks: HookMarks
    level: Array
    is_long: Array
    call: Array
    death: Array
    block: Array
    seg: Array
    thought_long: Array
    survives: Array
    window: Array
    change_call: Array
    change_seg: Array
    change_bytes: Array
    segment_pool: Array
    opened_by: Array
    peak_call: int

    @classmethod
    def of(cls, model: Model, deaths: Array, windows: HookWindows, *, marks: HookMarks) -> Lifecycle:
        """Returns the results of a model that has run all calls, given the frees and windows of the calls."""
        first, out, segment_pool = (
            model.first,
            dict(zip((*RESULTS, "is_long", "level"), model.out, strict=True)),
            of_segments(model),
        )
        made = np.flatnonzero((out["status"] == OK) & (out["seg"] >= 0))
        seg = out["seg"][made]
        log = model.log[:, : model.state.num_logged]
        is_change = (log[0] >= schema.SEGMENT_ALLOC) & (log[0] <= schema.SEGMENT_UNMAP)
        changes = dict(zip(LOG_COLUMNS, log[:, is_change], strict=True))
        gained = (changes["action"] == schema.SEGMENT_ALLOC) | (changes["action"] == schema.SEGMENT_MAP)
        opened = np.full(len(segment_pool), -1, np.int64)
        first_change = np.flatnonzero(gained)[::-1]
        opened[changes["seg"][first_change]] = changes["call"][first_change]  # the first of several is written last
        by = np.searchsorted(made, opened)
        is_made = np.append(made, -2)[by] == opened
        reserved = out["reserved"][max(first - 1, 0) :]
        return cls(
            marks=marks,
            level=out["level"][first:].astype(np.int8),
            is_long=out["is_long"][first:] == 1,
            call=np.maximum(made - first, -1),
            death=deaths[made] - first,
            block=out["block"][made],
            seg=seg,
            thought_long=out["is_long"][made] == 1,
            survives=deaths[made] >= windows.ends[made],
            window=np.select([windows.precise, windows.forward, windows.step], [1, 2, 3], 0).astype(np.int8)[made],
            change_call=np.maximum(changes["call"] - first, -1),
            change_seg=changes["seg"],
            change_bytes=np.where(gained, changes["size"], -changes["size"]),
            segment_pool=segment_pool,
            opened_by=np.where(is_made, by, -1),
            peak_call=int(np.argmax(reserved)) - (1 if first else 0) if len(reserved) else -1,
        )

    def detail(self) -> LifetimePools:
        """Returns the results as plain data."""
        return LifetimePools(
            hooks=self.marks.hooks,
            bases=self.marks.bases,
            total_bytes=int(self.block.sum()),
            long_lived_bytes=int(self.block[self.thought_long].sum()),
            false_long_lived=self.false_long_lived(),
            false_short_lived=self.false_short_lived(),
            pools=self.pools(),
        )

    def live(self, call: int) -> Array:
        """Returns which tensors are live after a call (bool); -1: at the start."""
        live: Array = (self.call <= call) & (self.death > call)
        return live

    def held_bytes(self, call: int) -> Array:
        """Returns the reserved bytes of every segment after a call (int64); -1: at the start."""
        now = self.change_call <= call
        return np.bincount(self.change_seg[now], self.change_bytes[now], len(self.segment_pool)).astype(np.int64)

    def used_bytes(self, call: int) -> Array:
        """Returns the allocated bytes of every segment after a call (int64)."""
        live = self.live(call)
        return np.bincount(self.seg[live], self.block[live], len(self.segment_pool)).astype(np.int64)

    def pools(self, call: int | None = None) -> tuple[PoolState, ...]:
        """Returns the four pools after a call; None: at the reserved peak."""
        call = self.peak_call if call is None else call
        held, used = self.held_bytes(call), self.used_bytes(call)
        surviving = self.live(call) & self.survives
        states = []
        for number, name in enumerate(pools.NAMES):
            mine = self.segment_pool == number
            staying = int(self.block[surviving & mine[self.seg]].sum())
            states.append(
                PoolState(name, int((held[mine] > 0).sum()), int(held[mine].sum()), int(used[mine].sum()), staying)
            )
        return tuple(states)

    def false_long_lived(self) -> Misfiled:
        """Returns tensors classified as long-lived, but freed within the window of their allocation."""
        wrong = self.thought_long & ~self.survives
        return self._misfiled(wrong, self._idle_bytes(wrong))

    def false_short_lived(self) -> Misfiled:
        """Returns tensors classified as short-lived within a window, but still live when it ended."""
        wrong = ~self.thought_long & self.survives & (self.window > 0)
        return self._misfiled(wrong, self._kept_bytes(wrong))

    def _misfiled(self, wrong: Array, cost: int) -> Misfiled:
        at_peak = wrong & self.live(self.peak_call)
        return Misfiled(int(wrong.sum()), int(self.block[wrong].sum()), int(self.block[at_peak].sum()), cost)

    def _idle_bytes(self, wrong: Array) -> int:
        """Returns the bytes, at the peak, of empty segments that were reserved for some tensors."""
        for_them = np.append(wrong, False)[self.opened_by]
        held, used = self.held_bytes(self.peak_call), self.used_bytes(self.peak_call)
        return int(held[for_them & (used == 0)].sum())

    def _kept_bytes(self, wrong: Array) -> int:
        """Returns the free bytes, at the peak, of short-lived segments that contain some tensors."""
        holds = np.zeros(len(self.segment_pool), bool)
        holds[self.seg[wrong & self.live(self.peak_call)]] = True
        free = self.held_bytes(self.peak_call) - self.used_bytes(self.peak_call)
        return int(free[holds & (self.segment_pool < 2 * pools.LONG)].sum())
