"""Moves excess tensors from the host to disk, and from the disk back to the device.

Only tensors present at the fullest moment can make room at that moment. On the host the tensors that are idle longest
go first, since copies to disk are slow; on disk those that are idle shortest go first.
"""

from __future__ import annotations

import numpy as np

from memdiag.offload.clock import Clock
from memdiag.offload.elsewhere import Elsewhere
from memdiag.offload.schedule import CPU, DISK
from memdiag.trace.table import Array

_NONE = np.empty(0, np.int64)


def overflow(elsewhere: Elsewhere, clock: Clock) -> tuple[Array, Array]:
    """Returns the windows that go to disk instead of the host, and those that stay on the device.

    Both are empty if host and disk have room.

    It considers one moment of each. A change shifts these moments, so call it until both are empty.

    Args:
        elsewhere: The planned moves.
        clock: Times of events.
    """
    settings, moves = elsewhere.settings, elsewhere.moves
    idle = clock.seconds[elsewhere.windows.end[moves.window]] - clock.seconds[elsewhere.windows.begin[moves.window]]
    too_much = elsewhere.disk - settings.offload_disk_size
    stay = _first(elsewhere, elsewhere.fullest(DISK), idle, too_much) if too_much > 0 else _NONE
    too_much = elsewhere.host[0] - settings.host_bytes
    to_disk = _first(elsewhere, elsewhere.fullest(CPU), -idle, too_much) if too_much > 0 else _NONE
    return moves.window[to_disk], moves.window[stay]


def without_overflow(elsewhere: Elsewhere, clock: Clock) -> Elsewhere:
    """Returns the moves that fit on host and disk; the other tensors stay on the device."""
    while True:
        rows = np.concatenate(overflow(elsewhere, clock))
        if not len(rows):
            return elsewhere
        elsewhere = elsewhere.only(~np.isin(elsewhere.moves.window, rows))


def _first(elsewhere: Elsewhere, rows: Array, rank: Array, least: int) -> Array:
    """Returns the first of some moves, by ``rank``, that together have at least ``least`` bytes."""
    size = elsewhere.windows.copy_bytes[elsewhere.moves.window]
    order = rows[np.lexsort((-size[rows], rank[rows]))]
    return order[: int(np.searchsorted(np.cumsum(size[order]), least)) + 1]
