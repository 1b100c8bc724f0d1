"""Lending pools are used in the order of the allocator's hash table."""

from __future__ import annotations

import pytest

from memdiag.allocator.use_on_oom_pools import FlatHashSet, hash_of


def order(pools: list[int], gone: tuple[int, ...] = ()) -> list[int]:
    table = FlatHashSet([hash_of((0, pool)) for pool in range(64)])
    for pool in pools:
        table.add(pool)
    for pool in gone:
        table.remove(pool)
    return table.members()


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ([1, 2, 3], [2, 1, 3]),  # ordered by multiples of the golden ratio
        ([2, 5], [2, 5]),  # both hash to the first of four slots; the pool that was added first gets it
        ([5, 2], [5, 2]),
        ([2, 5, 1], [5, 2, 1]),  # with eight slots, each pool has a separate one
    ],
)
def test_the_place_in_the_table_decides_and_who_was_first(pools: list[int], expected: list[int]) -> None:
    assert order(pools) == expected


def test_who_stands_behind_moves_up() -> None:
    assert order([2, 5, 1], gone=(1,)) == [5, 2]  # the table keeps its size
    table = FlatHashSet([hash_of((0, pool)) for pool in range(64)])
    table.add(2)
    table.add(5)
    table.remove(2)
    assert table.slots[0] == (0, 5)


def test_a_graphs_pool_is_known_by_its_first_number() -> None:
    assert hash_of((7, 0)) == hash_of((0, 7))
