"""The pinned pool on the host: it grows by blocks of a fixed size, and each tensor is within one of them.

A tensor larger than a block gets as many separate blocks as it needs. Within blocks, the best-fitting gap is used, and
adjacent gaps merge. Blocks are never released, since pinning memory is slow.
"""

from __future__ import annotations

import numpy as np

from memdiag.trace.compiled import njit, njit_part
from memdiag.trace.table import Array

_GRAIN = 4096


@njit_part
def _move(column: Array, first: int, last: int, by: int) -> None:
    """Shifts the elements from ``first`` until before ``last`` by one, forward (``by`` 1) or back (-1)."""
    if by > 0:
        for at in range(last, first, -1):
            column[at] = column[at - 1]
    else:
        for at in range(first - 1, last - 1):
            column[at] = column[at + 1]


@njit
def fill(stay: Array, is_put: Array, size: Array, block_bytes: int) -> tuple[Array, int, int]:
    """Adds stays to an empty pool and removes them.

    Args:
        stay: Rows of stays, in the order in which they begin and end.
        is_put: Whether it begins; otherwise it ends.
        size: Bytes of each stay.
        block_bytes: Growth of the pool.

    Returns:
        Address of each stay (bytes, blocks concatenated), and peaks of reserved and used bytes.
    """
    lies = np.full(len(size), -1, np.int64)
    # gaps, by address.
    place, room, num = np.empty(2 * len(size) + 2, np.int64), np.empty(2 * len(size) + 2, np.int64), 0
    behind = held = used = most = 0
    for turn in range(len(stay)):
        row = stay[turn]
        wanted = -(-max(size[row], 1) // _GRAIN) * _GRAIN
        if is_put[turn]:
            best = num
            for gap in range(num):
                if room[gap] >= wanted and (best == num or room[gap] < room[best]):
                    best = gap
            if best == num:
                place[num], room[num] = behind, -(-wanted // block_bytes) * block_bytes
                held += room[num]
                behind += room[num] + 1  # blocks are not adjacent, so gaps of two of them never merge
                num += 1
            lies[row] = place[best]
            place[best] += wanted
            room[best] -= wanted
            if not room[best]:
                _move(place, best + 1, num, -1)
                _move(room, best + 1, num, -1)
                num -= 1
            used += wanted
            most = max(most, used)
        else:
            used -= wanted
            gap = np.searchsorted(place[:num], lies[row])
            if gap > 0 and place[gap - 1] + room[gap - 1] == lies[row]:
                gap -= 1
                room[gap] += wanted
            else:
                _move(place, gap, num, 1)
                _move(room, gap, num, 1)
                place[gap], room[gap] = lies[row], wanted
                num += 1
            if gap + 1 < num and place[gap] + room[gap] == place[gap + 1]:
                room[gap] += room[gap + 1]
                _move(place, gap + 2, num, -1)
                _move(room, gap + 2, num, -1)
                num -= 1
    return lies, held, most


def peak_of(begin: Array, until: Array, size: Array, block_bytes: int) -> tuple[int, int]:
    """Returns peaks of reserved and used bytes for stays in the pool.

    Args:
        begin, until: Begin and end of each; infinite if there is none.
        size: Its bytes.
        block_bytes: Growth of the pool.
    """
    goes = np.flatnonzero(np.isfinite(until))
    stay = np.concatenate([np.arange(len(size)), goes])
    moment = np.concatenate([begin, np.maximum(until, begin)[goes]])
    # At the same time, departures free room first; but a tensor that departs as it arrives can do so only after that.
    kind = np.concatenate([np.ones(len(size), np.int64), np.where(until > begin, 0, 2)[goes]])
    order = np.lexsort((stay, kind, moment))
    _, held, most = fill(stay[order], order < len(size), size, block_bytes)
    return int(held), int(most)
