"""Changes to the requests of a program."""

from dataclasses import replace

import numpy as np

from memdiag.allocator.workload import ALLOC, EMPTY_CACHE, FREE, Workload
from memdiag.fix.edit import Edit, Made, Repeat, edited, union

MIB = 1 << 20


def workload(calls):
    """A workload from (op, tensor, size); the row of a call is its number."""
    op, tensor, size = (np.array(column) for column in zip(*calls, strict=True))
    zeros = np.zeros(len(op), np.int32)
    return Workload(
        op.astype(np.int8),
        tensor.astype(np.int32),
        size.astype(np.int64),
        zeros,
        zeros.copy(),
        np.arange(len(op)),
        len(op),
        int(tensor.max()) + 1,
        np.zeros(1, np.uint64),
    )


def live(made):
    """Live bytes after each call."""
    size, held, now = {}, [], 0
    for op, tensor, wanted in zip(made.op.tolist(), made.tensor.tolist(), made.size.tolist(), strict=True):
        if op == ALLOC:
            size[tensor] = wanted
            now += wanted
        else:
            now -= size.pop(tensor)
        held.append(now // MIB)
    return held


FORWARD = [(ALLOC, 0, 4 * MIB), (ALLOC, 1, 2 * MIB), (FREE, 1, 0), (ALLOC, 2, 1 * MIB), (FREE, 0, 0), (FREE, 2, 0)]


def test_nothing_changes_without_an_edit():
    assert live(edited(workload(FORWARD), Edit())) == [4, 6, 4, 5, 1, 0]


def test_a_dropped_tensor_is_neither_allocated_nor_freed():
    assert live(edited(workload(FORWARD), Edit(dropped=frozenset({1})))) == [4, 5, 1, 0]


def test_a_tensor_is_freed_earlier():
    assert live(edited(workload(FORWARD), Edit(freed={0: 2}))) == [4, 6, 2, 0, 1, 0]


def test_a_tensor_is_never_freed_before_it_is_allocated():
    assert live(edited(workload(FORWARD), Edit(freed={2: 0}))) == [4, 6, 4, 5, 4, 0]


def test_a_tensor_has_another_size():
    assert live(edited(workload(FORWARD), Edit(resized={0: 3 * MIB}))) == [3, 5, 3, 4, 1, 0]


def test_an_added_tensor_is_temporary():
    assert live(edited(workload(FORWARD), Edit(added=((3, 7 * MIB, 0),)))) == [4, 6, 4, 11, 4, 5, 1, 0]


def test_requests_are_repeated_and_the_copy_is_freed_where_the_original_was():
    calls = [*FORWARD[:3], (ALLOC, 2, 1 * MIB), (ALLOC, 3, 1 * MIB), (FREE, 0, 0), (FREE, 3, 0), (FREE, 2, 0)]
    found = edited(workload(calls), Edit(freed={0: 3}, repeats=(Repeat(0, 3, 4, {0: 5}),)))
    # freed after forward, made again before event 4, freed at event 5; tensor 1 comes after the last one needed
    assert live(found) == [4, 6, 4, 0, 1, 5, 6, 2, 1, 0]


def test_of_two_edits_the_earlier_free_counts():
    both = union([Edit(freed={0: 4}), Edit(freed={0: 2}, dropped=frozenset({1}))])
    assert dict(both.freed) == {0: 2}
    assert both.dropped == {1}


def test_requests_go_to_another_pool():
    work = replace(workload(FORWARD), pool=np.array([0, 1, -1, 2, -1, -1], np.int32), pools=((0, 0), (1, 0), (2, 0)))
    assert edited(work, Edit(pools={2: 1})).pool.tolist() == [0, 1, -1, 1, -1, -1]


def test_tensors_of_the_changed_program_only():
    made = (Made(1, 3, 8 * MIB, 0), Made(3, 5, 16 * MIB, 0))
    assert live(edited(workload(FORWARD), Edit(made=made))) == [4, 12, 14, 12, 4, 20, 21, 17, 1, 0]


def test_chosen_tensors_are_allocated_in_a_pool_of_their_own():
    changed = edited(workload(FORWARD), Edit(own_pool=frozenset({1})))
    assert changed.pools == ((0, 0), (0, 1))
    assert changed.pool[changed.op == ALLOC].tolist() == [0, 1, 0]


def test_cached_memory_is_released_before_an_event():
    changed = edited(workload(FORWARD), Edit(releases=(3,)))
    assert changed.op.tolist() == [ALLOC, ALLOC, FREE, EMPTY_CACHE, ALLOC, FREE, FREE]
