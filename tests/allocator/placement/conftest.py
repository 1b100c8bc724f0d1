"""Invented placement instances, and a slow optimal placement of a few buffers."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest


def columns(rows):
    """Returns sizes, lower and upper of rows (lower, upper, size)."""
    table = np.array(rows, np.int64).reshape(-1, 3)
    return table[:, 2].copy(), table[:, 0].copy(), table[:, 1].copy()


def lowest_height(rows):
    """Returns the height of the best placement: over all orders, each buffer as low as possible."""
    best = sum(size for _, _, size in rows)
    for order in permutations([row for row in rows if row[0] < row[1] and row[2]]):
        placed = []
        for lower, upper, size in order:
            at = 0
            for bottom, top, born, died in sorted(placed):
                if born < upper and died > lower:
                    if at + size <= bottom:
                        break
                    at = max(at, top)
            placed.append((at, at + size, lower, upper))
        best = min(best, max((top for _, top, _, _ in placed), default=0))
    return best


def cut(num, width, height, seed):
    """Divides a rectangle of time and bytes into ``num`` buffers, which fit into ``height`` without a gap."""
    chance = np.random.default_rng(seed)
    pieces = [(0, width, 0, height)]
    while len(pieces) < num:
        areas = np.array([(b - a) * (d - c) for a, b, c, d in pieces], float)
        born, died, low, high = pieces.pop(int(chance.choice(len(pieces), p=areas / areas.sum())))
        if (chance.random() < 0.5 or high - low < 2) and died - born > 1:
            at = int(chance.integers(born + 1, died))
            pieces += [(born, at, low, high), (at, died, low, high)]
        elif high - low > 1:
            at = int(chance.integers(low + 1, high))
            pieces += [(born, died, low, at), (born, died, at, high)]
        else:
            pieces.append((born, died, low, high))
    order = chance.permutation(len(pieces))
    return [(pieces[k][0], pieces[k][1], pieces[k][3] - pieces[k][2]) for k in order.tolist()]


@pytest.fixture(scope="session")
def made_up():
    return SimpleNamespace(columns=columns, lowest_height=lowest_height, cut=cut)
