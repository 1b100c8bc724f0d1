"""What moved tensors need on the host and on disk.

Accounting for the pinned pool takes long beside the rest of a plan, and most plans that are tried are dropped for
another reason: it is done when it is asked for, and once.
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
    """Where moves bring tensors to, and what room there is.

    Attributes:
        windows: All of them.
        moves: The moves.
        settings: What was asked for.
    """

    windows: Windows
    moves: Moves
    settings: OffloadSettings

    @cached_property
    def host(self) -> tuple[int, int]:
        """Bytes held by the pinned pool, and used of it, at most."""
        return peak_of(*self._stays(CPU), self.settings.host_mem_block_size)

    @cached_property
    def disk(self) -> int:
        """Bytes on disk at most."""
        return self._fullest(DISK)[0]

    @property
    def has_room(self) -> bool:
        """The host and the disk have room for it."""
        return self.host[0] <= self.settings.host_bytes and self.disk <= self.settings.offload_disk_size

    def only(self, kept: Array) -> Elsewhere:
        """Returns it for some of the moves (``kept``, one bool each)."""
        return self if kept.all() else replace(self, moves=self.moves.take(np.flatnonzero(kept)))

    def fullest(self, place: int) -> Array:
        """Returns the moves of which something is there at the moment at which ``place`` holds most."""
        _, moment = self._fullest(place)
        rows = np.flatnonzero(self.moves.place == place)
        begin, until, _ = self._stays(place)
        found: Array = rows[(begin <= moment) & ((until > moment) | (begin == moment))]
        return found

    def _fullest(self, place: int) -> tuple[int, float]:
        """Returns the bytes that ``place`` holds at most, and when."""
        begin, until, size = self._stays(place)
        if not len(size):
            return 0, 0.0
        # At one moment, what goes makes room first; but what goes as it comes can go only after that.
        moment = np.concatenate([begin, np.maximum(until, begin)])
        order = np.lexsort((np.concatenate([np.ones(len(size)), np.where(until > begin, 0, 2)]), moment))
        held = np.cumsum(np.concatenate([size, -size])[order])
        return int(held.max()), float(moment[order[held.argmax()]])

    def _stays(self, place: int) -> tuple[Array, Array, Array]:
        """Returns from when, until when and how many bytes are there, one a move."""
        moves = self.moves
        rows = np.flatnonzero(moves.place == place)
        size = self.windows.copy_bytes[moves.window[rows]]
        if (moves.out_end > 0).any():
            return moves.out_begin[rows], moves.back_end[rows], size
        # Where no times are known, events stand for them.
        return (
            moves.out_at[rows].astype(float),
            np.where(np.isinf(moves.back_end[rows]), np.inf, moves.back_at[rows]),
            size,
        )
