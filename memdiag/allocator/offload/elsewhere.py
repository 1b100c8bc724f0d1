"""What moved tensors need on the host and on disk.

Accounting for the pinned pool takes long beside the rest of a plan, and most plans that are tried are dropped for another reason: it is
done when it is asked for, and once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from memdiag.allocator.offload.host import peak_of
from memdiag.allocator.offload.schedule import CPU, DISK, Moves
from memdiag.allocator.offload.settings import OffloadSettings
from memdiag.allocator.offload.windows import Windows
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
        begin, until, size = self._stays(DISK)
        if not len(size):
            return 0
        # At one moment, what goes makes room first.
        order = np.lexsort((np.repeat([1, 0], len(size)), np.concatenate([begin, until])))
        return int(np.cumsum(np.concatenate([size, -size])[order]).max())

    @property
    def has_room(self) -> bool:
        """The host and the disk have room for it."""
        return self.host[0] <= self.settings.host_bytes and self.disk <= self.settings.offload_disk_size

    def only(self, kept: Array) -> Elsewhere:
        """Returns it for some of the moves (``kept``, one bool each)."""
        return self if kept.all() else replace(self, moves=self.moves.take(np.flatnonzero(kept)))

    def _stays(self, place: int) -> tuple[Array, Array, Array]:
        """Returns from when, until when and how many bytes are there, one a move."""
        moves = self.moves
        rows = np.flatnonzero(moves.place == place)
        size = self.windows.copy_bytes[moves.window[rows]]
        if (moves.out_end > 0).any():
            return moves.out_begin[rows], moves.back_end[rows], size
        # Where no times are known, events stand for them.
        return moves.out_at[rows].astype(float), np.where(np.isinf(moves.back_end[rows]), np.inf, moves.back_at[rows]), size
