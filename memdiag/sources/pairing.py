"""Assigns identities to events without them: a free is paired with the newest live allocation of its kind.

Programs usually free the newest of several equal tensors first, since temporaries nest. In any case, the live bytes of
each size are correct at every moment; only the identity of the survivor is a guess.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memdiag.trace.table import Array


class Pairing:
    """Assigns identities.

    Attributes:
        num_before: Number of freed tensors without a recorded allocation.
    """

    def __init__(self) -> None:
        self._live: dict[object, list[int]] = {}
        self._next = 0
        self.num_before = 0

    def _new(self) -> int:
        self._next += 1
        return self._next - 1

    def born(self, kind: object) -> int:
        """Returns the identity of a new tensor of a kind (for example its size)."""
        identity = self._new()
        self._live.setdefault(kind, []).append(identity)
        return identity

    def dies(self, kind: object) -> int:
        """Returns the identity of a freed tensor: the newest of its kind, or one from before the trace."""
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
    """Returns the identity per event (int64), given bytes gained (positive) or lost (negative); -1 for no change."""
    pairing = Pairing()
    return np.array([pairing.born(c) if c > 0 else pairing.dies(-c) if c else -1 for c in change], np.int64)
