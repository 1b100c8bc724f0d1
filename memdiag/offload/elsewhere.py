"""Memory that moved tensors need on the host and on disk.

Simulating the pinned pool takes longer than the rest of a plan, and most attempted plans are dropped for another
reason. It is therefore simulated once, on demand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from memdiag.offload.host import peak_of
from memdiag.offload.schedule import CPU, DISK, Moves
from memdiag.offload.settings import OffloadSettings
from memdiag.offload.windows import Windows
from memdiag.trace.table import Array


@dataclass(frozen=True)
class Elsewhere:
    """Destinations of moves, and their room.

    Attributes:
        windows: All of them.
        moves: The moves.
        settings: The requested settings.
    """

    windows: Windows
    moves: Moves
    settings: OffloadSettings

    @cached_property
    def host(self) -> tuple[int, int]:
        """Peak bytes reserved by the pinned pool, and peak bytes used in it."""
        return peak_of(*self._stays(CPU), self.settings.host_mem_block_size)

    @cached_property
    def disk(self) -> int:
        """Peak bytes on disk."""
        return self._fullest(DISK)[0]

    @property
    def has_room(self) -> bool:
        """True if the host and the disk have room for it."""
        return self.host[0] <= self.settings.host_bytes and self.disk <= self.settings.offload_disk_size

    def only(self, kept: Array) -> Elsewhere:
        """Returns the destinations of some of the moves (``kept``, one bool each)."""
        return self if kept.all() else replace(self, moves=self.moves.take(np.flatnonzero(kept)))

    def fullest(self, place: int) -> Array:
        """Returns the moves with data in ``place`` at the moment when it is fullest."""
        _, moment = self._fullest(place)
        rows = np.flatnonzero(self.moves.place == place)
        begin, until, _ = self._stays(place)
        found: Array = rows[(begin <= moment) & ((until > moment) | (begin == moment))]
        return found

    def _fullest(self, place: int) -> tuple[int, float]:
        """Returns the peak bytes in ``place``, and its time."""
        begin, until, size = self._stays(place)
        if not len(size):
            return 0, 0.0
        # At the same time, departures free room first; but a tensor that departs as it arrives can do so only after
        # that.
        moment = np.concatenate([begin, np.maximum(until, begin)])
        order = np.lexsort((np.concatenate([np.ones(len(size)), np.where(until > begin, 0, 2)]), moment))
        held = np.cumsum(np.concatenate([size, -size])[order])
        return int(held.max()), float(moment[order[held.argmax()]])

    def _stays(self, place: int) -> tuple[Array, Array, Array]:
        """Returns begin, end and bytes of each stay."""
        moves = self.moves
        rows = np.flatnonzero(moves.place == place)
        size = self.windows.copy_bytes[moves.window[rows]]
        if (moves.out_end > 0).any():
            return moves.out_begin[rows], moves.back_end[rows], size
        # Without times, events are used instead.
        return (
            moves.out_at[rows].astype(float),
            np.where(np.isinf(moves.back_end[rows]), np.inf, moves.back_at[rows]),
            size,
        )
