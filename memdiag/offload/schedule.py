"""Schedules copies: sequential per direction, out as soon as a tensor is idle, back as late as possible in time.

Both directions run concurrently, and concurrently with the program (pinned memory, separate streams). The program waits
for tensors that cannot be reloaded in time. On demand (the forced strategy), there is no prefetching: the program waits
for each copy back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memdiag.offload.clock import Clock
from memdiag.offload.queues import CopyTimes, in_time, lay_out, waits_for
from memdiag.offload.settings import OffloadSettings
from memdiag.offload.waits import wait_for_room
from memdiag.offload.windows import Windows
from memdiag.trace.table import Array

CPU, DISK = 0, 1
IN_TIME = 1e-9  # seconds that count as zero


@dataclass(frozen=True)
class Moves:
    """Moves of tensors, one numpy array per column.

    Attributes:
        window: Row in Windows.
        place: ``CPU`` or ``DISK``.
        out_begin, out_end, back_begin, back_end: Seconds; back is infinite if it is never needed again.
        out_at: Event before which the device's bytes are free.
        back_at: Event before which they are allocated again, or the number of events for never.
        wait: Seconds that the program waits for it.
    """

    window: Array
    place: Array
    out_begin: Array
    out_end: Array
    back_begin: Array
    back_end: Array
    out_at: Array
    back_at: Array
    wait: Array

    def __len__(self) -> int:
        return len(self.window)

    def take(self, rows: Array) -> Moves:
        """Returns the given rows."""
        return Moves(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def copy_seconds(size: Array, place: Array, settings: OffloadSettings) -> tuple[Array, Array]:
    """Returns the seconds of each copy, away and back."""
    link, disk = settings.link, settings.disk
    share = 1.0 if settings.enable_pinned_mem else link.pageable
    away = size / (link.away * share) + link.latency_us / 1e6
    back = size / (link.back * share) + link.latency_us / 1e6
    to_disk, from_disk = size / disk.away + disk.latency_us / 1e6, size / disk.back + disk.latency_us / 1e6
    on_disk = place == DISK
    join = np.maximum if settings.enable_aio else np.add  # concurrently, block by block; or one after the other
    return np.where(on_disk, join(away, to_disk), away), np.where(on_disk, join(back, from_disk), back)


@dataclass(frozen=True)
class Copies:
    """Required copies, without their times: one numpy array per column.

    Attributes:
        window, place: As in ``Moves``.
        begin, end: Events from which and until which each tensor is idle.
        away, back: Seconds of its copies.
        by_begin, by_end: Rows sorted by ``begin`` ascending, and by ``end`` descending.
        is_pinned: Whether the program continues while they run.
    """

    window: Array
    place: Array
    begin: Array
    end: Array
    away: Array
    back: Array
    by_begin: Array
    by_end: Array
    is_pinned: bool

    @classmethod
    def of(cls, windows: Windows, rows: Array, place: Array, clock: Clock, settings: OffloadSettings) -> Copies:
        """Returns those of the chosen windows (``rows``), each to its ``place``."""
        begin, end = windows.begin[rows], windows.end[rows]
        away, back = copy_seconds(windows.copy_bytes[rows], place, settings)
        if not clock.is_known:
            away, back = np.zeros_like(away), np.zeros_like(back)
        orders = np.argsort(begin, kind="stable"), np.argsort(-end, kind="stable")
        return cls(rows, place, begin, end, away, back, *orders, settings.enable_pinned_mem)

    @property
    def _times(self) -> CopyTimes:
        """Returns the columns, for compiled functions."""
        return CopyTimes(self.begin, self.end, self.away, self.back, self.by_begin, self.by_end)

    def only(self, kept: Array) -> Copies:
        """Returns a selection (``kept``, one bool each), which needs no sorting."""
        number = np.cumsum(kept) - 1
        by_begin, by_end = (number[order[kept[order]]] for order in (self.by_begin, self.by_end))
        return replace(
            self,
            window=self.window[kept],
            place=self.place[kept],
            begin=self.begin[kept],
            end=self.end[kept],
            away=self.away[kept],
            back=self.back[kept],
            by_begin=by_begin,
            by_end=by_end,
        )

    def in_time(self, clock: Clock, room: Array) -> Array:
        """Returns which to keep (one bool each) so that the program waits for none.

        Copies with the least ``room`` are dropped first.
        """
        if not self.is_pinned:  # the program waits for each copy
            return np.zeros(len(self.window), bool)
        never = self.end >= len(clock.seconds) - 1
        needed = np.where(never, np.inf, clock.seconds[self.end])
        order = np.argsort(room, kind="stable")
        kept: Array = in_time(
            clock.seconds[self.begin], needed, self.away, self.back, self.by_begin, self.by_end, order, IN_TIME
        )
        return kept

    def wait_for_room(self, clock: Clock, size: Array, excess: Array) -> tuple[Clock, Array, float]:
        """Returns times with waits, the corresponding ``hold``, and the total wait.

        Args:
            clock: Event times.
            size: Bytes of each on the device.
            excess: Bytes that must be offloaded after each event; 0 or negative for none.
        """
        seconds, hold, stalled = wait_for_room(clock.seconds, self._times, size, excess)
        return replace(clock, seconds=seconds), hold, float(stalled)

    def laid_out(self, clock: Clock, *, on_demand: bool = False, hold: Array | None = None) -> Moves:
        """Returns their schedule.

        Args:
            clock: Event times.
            on_demand: Whether tensors are reloaded only when needed.
            hold: Events before which each may not be reloaded, or None.
        """
        num_events = len(clock.seconds) - 1
        never = self.end >= num_events
        not_held = np.zeros(len(self.window), np.int64) if hold is None else hold
        out_begin, out_end, back_begin, back_end, out_at, back_at = lay_out(
            clock.seconds, self._times, not_held, on_demand
        )
        needed = clock.seconds[self.end]
        if on_demand:
            wait = np.where(never, 0.0, np.maximum(back_end - needed, 0.0))
        else:
            wait = waits_for(np.where(never, np.inf, needed), back_end, self.by_end)
        if not self.is_pinned:  # the host makes copies of pageable memory, so the program stops for both directions
            wait = self.away + np.where(never, 0.0, np.maximum(wait, self.back))
        if not clock.is_known:
            back_at = np.where(never, num_events, self.end)
            out_at = np.minimum(self.begin, back_at)
        return Moves(self.window, self.place, out_begin, out_end, back_begin, back_end, out_at, back_at, wait)


def schedule(
    windows: Windows, rows: Array, place: Array, clock: Clock, settings: OffloadSettings, *, on_demand: bool = False
) -> Moves:
    """Returns the schedule of the chosen windows.

    Args:
        windows: All of them.
        rows: The chosen ones.
        place: Destination of each.
        clock: Event times.
        settings: Copy rates.
        on_demand: Whether tensors are reloaded only when needed.
    """
    return Copies.of(windows, rows, place, clock, settings).laid_out(clock, on_demand=on_demand)
