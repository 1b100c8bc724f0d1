"""The order in which the allocator tries the pools that lend to the default pool: their order in its hash table.

The table (ska::flat_hash_set in c10) has a power of two of slots, at most half of them full, and a few overflow slots.
Fibonacci hashing gives each id its slot; if the slot is occupied, the id goes into the next possible slot. When two ids
collide, the one that is further from its own slot keeps the place.
"""

from __future__ import annotations

from memdiag.allocator.engine.memory import Nodes
from memdiag.allocator.workload import POOL_BEGIN, POOL_RELEASE, Workload

_GOLDEN = 11400714819323198485  # 2^64 / the golden ratio
_FEWEST_SLOTS = 4


def hash_of(pool: tuple[int, int]) -> int:
    """Returns the slot of an id in a table of 2^64 slots."""
    major, minor = pool
    return (major or minor) * _GOLDEN % (1 << 64)


def turns_of(workload: Workload) -> list[int]:
    """Returns the indices of the lending pools in the order in which they are tried, if no two share a slot."""
    return sorted(workload.stand_in, key=lambda index: hash_of(workload.pools[index]))


def changes_of(workload: Workload) -> list[int]:
    """Returns the ends of the calls after which the set of lending pools may change."""
    return [
        at + 1
        for at, (op, pool) in enumerate(zip(workload.op.tolist(), workload.pool.tolist(), strict=True))
        if op in (POOL_BEGIN, POOL_RELEASE) and pool in workload.stand_in
    ]


class FlatHashSet:
    """The hash table; ``hashes`` has the hashes of all possible members."""

    def __init__(self, hashes: list[int]) -> None:
        self.hashes = hashes
        self.num_slots = 0
        self.slots: list[tuple[int, int] | None] = []  # distance from its own slot, member

    def members(self) -> list[int]:
        """Returns all members, in the order of the table."""
        return [slot[1] for slot in self.slots if slot is not None]

    def add(self, member: int) -> None:
        """Adds a member that the table does not have yet."""
        if 2 * (len(self.members()) + 1) > self.num_slots:
            self._grow()
        most = max(_FEWEST_SLOTS, self.num_slots.bit_length() - 1)
        away, at = 0, self.hashes[member] * self.num_slots >> 64
        while away < most:
            held = self.slots[at]
            if held is None:
                self.slots[at] = (away, member)
                return
            if held[0] < away:
                self.slots[at] = (away, member)
                away, member = held
            at, away = at + 1, away + 1
        self._grow()
        self.add(member)

    def remove(self, member: int) -> None:
        """Removes a member; later members that are not in their own slots move up."""
        at = next(place for place, slot in enumerate(self.slots) if slot is not None and slot[1] == member)
        self.slots[at] = None
        while at + 1 < len(self.slots) and (following := self.slots[at + 1]) is not None and following[0] > 0:
            self.slots[at], self.slots[at + 1] = (following[0] - 1, following[1]), None
            at += 1

    def _grow(self) -> None:
        members = self.members()
        self.num_slots = max(_FEWEST_SLOTS, 2 * self.num_slots)
        self.slots = [None] * (self.num_slots + max(_FEWEST_SLOTS, self.num_slots.bit_length() - 1))
        for member in members:
            self.add(member)


class UseOnOomPools:
    """The lending pools during a replay; ``rows`` are their nodes, by index."""

    def __init__(self, pools: tuple[tuple[int, int], ...], rows: Nodes) -> None:
        self.table = FlatHashSet([hash_of(pool) for pool in pools])
        self.put_in_order(rows)

    def put_in_order(self, rows: Nodes) -> None:
        """Sets the turn of every pool that currently lends."""
        now = [index for index in range(len(rows)) if rows[index].use_on_oom]
        before = self.table.members()
        for index in before:
            if index not in now:
                self.table.remove(index)
        for index in now:
            if index not in before:
                self.table.add(index)
        for turn, index in enumerate(self.table.members()):
            rows[index].use_on_oom = turn + 1
