"""Copies in one direction queue, tensors are back in time or waited for, and tensors in the host pool never overlap."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memdiag.offload.clock import Clock
from memdiag.offload.host import fill, peak_of
from memdiag.offload.schedule import CPU, DISK, IN_TIME, Copies, copy_seconds, schedule
from memdiag.offload.settings import OffloadSettings
from memdiag.offload.windows import Windows

NUM_EVENTS = 60
GB = 10**9


@st.composite
def windows(draw):
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, NUM_EVENTS - 2), st.integers(1, 40), st.integers(1, 4 * GB)),
            min_size=1,
            max_size=12,
        )
    )
    begin = np.array([begin for begin, _, _ in rows])
    end = np.minimum(begin + np.array([length for _, length, _ in rows]), NUM_EVENTS)
    size = np.array([size for _, _, size in rows])
    n = len(rows)
    return Windows(np.arange(n), begin, end, size, size, np.zeros(n, int), np.ones(n, bool))


@given(windows(), st.booleans(), st.floats(0.01, 3), st.integers(0, 1))
@settings(max_examples=150, deadline=None)
def test_copies_in_one_direction_never_overlap_and_tensors_are_back_before_use(found, on_demand, speed, place):
    clock = Clock(np.arange(NUM_EVENTS + 1) * 0.1 * speed, 1.0, 1, is_known=True)
    rows, where = np.arange(len(found)), np.full(len(found), (CPU, DISK)[place])
    options = OffloadSettings()
    moves = schedule(found, rows, where, clock, options, on_demand=on_demand)
    away, back = copy_seconds(found.copy_bytes, where, options)
    order = np.argsort(moves.out_begin, kind="stable")
    assert (moves.out_begin[order][1:] >= moves.out_end[order][:-1] - 1e-9).all()
    assert np.allclose(moves.out_end - moves.out_begin, away)
    assert (moves.out_begin >= clock.seconds[found.begin] - 1e-9).all()
    comes = np.isfinite(moves.back_end)
    assert (comes == (found.end < NUM_EVENTS)).all()
    assert np.allclose(moves.back_end[comes] - moves.back_begin[comes], back[comes])
    assert (moves.back_begin[comes] >= moves.out_end[comes] - 1e-9).all()
    late = np.maximum(moves.back_end - clock.seconds[found.end], 0)[comes]
    if on_demand:
        assert (moves.wait[comes] >= late - 1e-9).all()
    else:
        begins = np.argsort(moves.back_begin[comes], kind="stable")
        assert (moves.back_begin[comes][begins][1:] >= moves.back_end[comes][begins][:-1] - 1e-6).all()
        # A wait for one copy gives later copies that much more time, so all waits together equal the longest delay.
        until = np.array([moves.wait[comes][found.end[comes] <= end].sum() for end in found.end[comes].tolist()])
        assert (until >= late - 1e-9).all()
        assert np.isclose(moves.wait.sum(), late.max(initial=0))
    # Device memory is freed only after the copy out, and allocated again before the copy back.
    assert ((moves.out_at >= found.begin) & (moves.back_at <= np.maximum(found.end, moves.out_at))).all()
    gone = moves.back_at > moves.out_at
    assert (clock.seconds[np.minimum(moves.out_at, NUM_EVENTS)][gone] >= moves.out_end[gone] - 1e-9).all()
    if not on_demand:
        assert (clock.seconds[moves.back_at][gone & comes] <= moves.back_begin[gone & comes] + 1e-9).all()


@given(windows(), st.floats(0.1, 3))
@settings(max_examples=100, deadline=None)
def test_an_eighth_of_the_late_copies_is_dropped_until_all_are_in_time(found, speed):
    """The result equals that of scheduling all remaining copies again in each round."""
    clock = Clock(np.arange(NUM_EVENTS + 1) * 0.1 * speed, 1.0, 1, is_known=True)
    rows, room = np.arange(len(found)), found.copy_bytes % 7.0
    copies = Copies.of(found, rows, np.full(len(found), CPU), clock, OffloadSettings())
    kept = copies.in_time(clock, room)
    while (
        late := rows[(schedule(found, rows, np.full(len(rows), CPU), clock, OffloadSettings())).wait > IN_TIME]
    ).size:
        late = late[np.argsort(room[late], kind="stable")][: max(len(late) // 8, 1)]
        rows = rows[~np.isin(rows, late)]
    assert (np.flatnonzero(kept) == rows).all()


@st.composite
def stays(draw):
    """Draws the bytes of stays in the host pool, and turns: (stay, whether it begins)."""
    sizes, live, turns = [], [], []
    for is_put, number in draw(st.lists(st.tuples(st.booleans(), st.integers(1, 3 << 20)), max_size=60)):
        if is_put or not live:
            live.append(len(sizes))
            turns.append((len(sizes), True))
            sizes.append(number)
        else:
            turns.append((live.pop(number % len(live)), False))
    return sizes, turns


def filled(sizes, turns):
    return fill(
        np.array([stay for stay, _ in turns], np.int64),
        np.array([comes for _, comes in turns], bool),
        np.array(sizes, np.int64),
        1 << 20,
    )


@given(stays())
@settings(max_examples=100, deadline=None)
def test_the_host_pool_has_whole_blocks_and_no_overlaps(given_stays):
    sizes, turns = given_stays
    lies, held, most = filled(sizes, turns)
    live = set()
    for stay, comes in turns:
        live ^= {stay}
        places = sorted((int(lies[each]), sizes[each]) for each in live)
        assert all(place + size <= after for (place, size), (after, _) in pairwise(places))
        assert comes == (stay in live)
        assert sum(sizes[each] for each in live) <= most
    assert held % (1 << 20) == 0
    assert most <= held


@given(stays())
@settings(max_examples=100, deadline=None)
def test_the_host_pool_uses_the_first_of_the_best_fitting_gaps(given_stays):
    """The result equals that of a simple pool that searches every gap of every block.

    A block of that pool is (bytes, {offset: bytes of the tensor at it}).
    """
    sizes, turns = given_stays
    live, blocks, most = {}, [], 0
    for number, (stay, comes) in enumerate(turns):
        if comes:
            wanted = -(-sizes[stay] // 4096) * 4096
            fitting = [
                (room, at, place)
                for at, block in enumerate(blocks)
                for place, room in gaps_of(*block)
                if room >= wanted
            ]
            if not fitting:
                fitting = [(0, len(blocks), 0)]
                blocks.append((-(-wanted // (1 << 20)) << 20, {}))
            _, at, place = min(fitting)
            blocks[at][1][place] = wanted
            live[stay] = at, place
        else:
            at, place = live.pop(stay)
            del blocks[at][1][place]
        most = max(most, sum(sum(there.values()) for _, there in blocks))
        _, held, used = filled(sizes, turns[: number + 1])
        assert (held, used) == (sum(size for size, _ in blocks), most)


def gaps_of(size, there):
    edges = [0, *(edge for place in sorted(there) for edge in (place, place + there[place])), size]
    return [(begin, end - begin) for begin, end in zip(edges[::2], edges[1::2], strict=True) if end > begin]


def test_a_reused_pool_does_not_grow():
    moment = np.arange(51.0)
    assert peak_of(moment[:-1], moment[1:], np.full(50, 700_000), 1 << 20) == (1 << 20, 700_416)
