"""Identities for events that have none: a free is paired with the newest allocation of its kind that is still there.

Of several equal tensors the newest usually goes first, since temporaries nest. Whichever goes, what is live of each
size at any moment is the same; only who of them lives on is a guess.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memdiag.trace.table import Array


class Pairing:
    """Gives out identities.

    Attributes:
        num_before: How many tensors were freed that were never seen being allocated.
    """

    def __init__(self) -> None:
        self._live: dict[object, list[int]] = {}
        self._next = 0
        self.num_before = 0

    def _new(self) -> int:
        self._next += 1
        return self._next - 1

    def born(self, kind: object) -> int:
        """Returns the identity of a new tensor of a kind (its size, say)."""
        identity = self._new()
        self._live.setdefault(kind, []).append(identity)
        return identity

    def dies(self, kind: object) -> int:
        """Returns the identity of the tensor that is freed: the newest of its kind, or one from before."""
        rows = self._live.get(kind)
        if rows:
            return rows.pop()
        self.num_before += 1
        return self._new()

    def becomes(self, kind: object, other: object) -> int:
        """Moves the newest tensor of a kind to another kind; returns its identity."""
        identity = self.dies(kind)
        self._live.setdefault(other, []).append(identity)
        return identity


def pair_by_size(change: Iterable[int]) -> Array:
    """Returns the identity per event (int64), given bytes gained (positive) or lost (negative); -1 for a change of 0."""
    pairing = Pairing()
    return np.array([pairing.born(c) if c > 0 else pairing.dies(-c) if c else -1 for c in change], np.int64)
