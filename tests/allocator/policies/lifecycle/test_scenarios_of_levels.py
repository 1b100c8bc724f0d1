"""Requests are served at the right level under each restriction and limit. The reference runs every program too."""

from __future__ import annotations

import pytest

from memdiag.allocator import workload as w
from memdiag.allocator.policies.lifecycle.policy import LIFECYCLE, LIFECYCLE_STACK, LIFETIME_ORACLE
from memdiag.allocator.scenario import Scenario
from memdiag.errors import MemdiagError
from tests.allocator.policies.lifecycle.lifecycle_program import Program, check, rows_of
from tests.allocator.policies.lifecycle.lifecycle_reference import LARGE_SEGMENT, MIB, VERY_LARGE, Settings

KIB = 1024
CARD = 65536 * MIB


def long_lived(program: Program, tensor: int, size: int) -> Program:
    return program.mark("precise_begin").alloc(tensor, size).mark("precise_end")


def in_forward(program: Program) -> Program:
    """Returns a program in a forward window in which A (3 MiB) is known to be short-lived at any position."""
    program.mark("forward_begin", "forward_end", "forward_begin").alloc(900, 3 * MIB).free(900).mark("forward_end")
    return program.call(w.EMPTY_CACHE).mark("forward_begin")


def last(program: Program, settings: Settings | None = None, capacity: int | None = CARD) -> dict[str, object]:
    """Returns the result of the last call."""
    return rows_of(check(program, settings, capacity))[-1]


# ---- segments and cutting


@pytest.mark.parametrize(
    ("size", "short_segment", "long_segment"),
    [
        (512, 2, 2),
        (MIB, 2, 2),
        (MIB + 1, 20, 2),
        (2 * MIB, 20, 2),
        (2 * MIB + 1, 20, 4),
        (10 * MIB - 512, 20, 10),
        (10 * MIB - 511, 10, 10),
        (10 * MIB, 10, 10),
        (11 * MIB, 12, 12),
        (30 * MIB, 30, 30),
    ],
)
def test_segments(size: int, short_segment: int, long_segment: int) -> None:
    assert last(Program().alloc(0, size))["reserved"] == short_segment * MIB
    assert last(long_lived(Program(), 0, size))["reserved"] == long_segment * MIB


def test_blocks_are_cut_where_the_rest_is_worth_it() -> None:
    assert last(Program().alloc(0, 1000))["block"] == 1024  # there is no padding
    assert last(Program().alloc(0, 1))["block"] == 512
    assert last(Program().alloc(0, 19 * MIB))["block"] == 20 * MIB  # exactly 1 MiB is not
    assert last(Program().alloc(0, 19 * MIB - 512))["block"] == 19 * MIB - 512
    # its tail remains in the pool
    assert last(long_lived(Program(), 0, 29 * MIB // 10))["block"] == -(-29 * MIB // 10 // 512) * 512


def test_what_is_freed_joins_its_neighbours_and_stays_in_its_pool() -> None:
    program = Program().alloc(0, 6 * MIB).alloc(1, 6 * MIB).alloc(2, 6 * MIB).free(0, 2, 1).alloc(3, 20 * MIB)
    assert last(program) == {**last(program), "seg": 0, "off": 0, "level": "P1"}


# ---- P1: own pool first, then the other, under restrictions


def test_own_pool_before_the_other() -> None:
    def two() -> Program:
        return long_lived(Program().alloc(0, MIB).alloc(1, MIB), 2, MIB).free(0, 2)

    assert last(long_lived(two(), 3, MIB))["seg"] == 1
    assert last(two().alloc(3, MIB))["seg"] == 0


def test_small_requests_use_either_small_pool() -> None:
    assert last(long_lived(Program(), 0, 512).free(0).alloc(1, 512)) == {**last(Program().alloc(0, 512)), "level": "P1"}
    borrowed = long_lived(Program().alloc(0, 512).free(0), 1, 512)
    assert last(borrowed)["level"] == "P1"
    assert last(in_forward(long_lived(Program(), 0, 512).alloc(3, 512).free(3)).alloc(1, 100 * KIB))["level"] == "P1"


def test_a_block_of_max_split_size_serves_requests_of_that_size_only() -> None:
    limit = Settings(max_split=40 * MIB)
    assert last(Program().alloc(0, 40 * MIB).free(0).alloc(1, 38 * MIB), limit)["level"] == "P2"  # never cut
    assert last(Program().alloc(0, 38 * MIB).free(0).alloc(1, 30 * MIB), limit)["level"] == "P1"
    assert last(Program().alloc(0, 60 * MIB).free(0).alloc(1, 40 * MIB), limit)["level"] == "P2"  # 20 MiB larger
    assert last(Program().alloc(0, 58 * MIB).free(0).alloc(1, 40 * MIB), limit) == {
        **last(Program().alloc(0, 58 * MIB).free(0).alloc(1, 40 * MIB), limit),
        "level": "P1",
        "block": 58 * MIB,
    }


def test_a_very_large_block_serves_requests_that_nearly_fill_it_only() -> None:
    huge = -(-VERY_LARGE // (2 * MIB)) * 2 * MIB
    assert last(Program().alloc(0, huge).free(0).alloc(1, 3 * MIB))["level"] == "P2"
    # nearly all of it
    assert last(Program().alloc(0, huge).free(0).alloc(1, huge - LARGE_SEGMENT + 512))["level"] == "P1"
    assert last(Program().alloc(0, huge).free(0).alloc(1, huge - LARGE_SEGMENT))["level"] == "P2"
    # below 1.8 GB
    assert last(Program().alloc(0, huge - 2 * MIB - 20 * MIB).free(0).alloc(1, 3 * MIB))["level"] == "P1"
    # only in the own pool
    assert last(long_lived(Program(), 0, huge).free(0).alloc(1, 3 * MIB))["level"] == "P1"
    program = in_forward(Program().alloc(0, huge))
    # allowed in forward
    assert last(program.free(0).alloc(1, 3 * MIB)) == {
        **last(program),
        "level": "P1",
        "is_long": False,
    }


def test_in_forward_no_long_lived_memory_is_borrowed() -> None:
    program = in_forward(long_lived(Program(), 0, 30 * MIB)).free(0).alloc(1, 3 * MIB)
    assert last(program) == {**last(program), "level": "P2", "is_long": False}
    outside = long_lived(Program(), 0, 30 * MIB).free(0).alloc(1, 3 * MIB)
    assert last(outside) == {**last(outside), "level": "P1", "seg": 0}  # may be borrowed


def test_a_long_lived_request_reuses_segments_that_it_would_reserve_only() -> None:
    def again(first: int, second: int) -> object:
        return last(long_lived(long_lived(Program(), 0, first).free(0), 1, second))["level"]

    assert again(30 * MIB, 30 * MIB) == "P1"
    assert again(30 * MIB, 29 * MIB) == "P1"  # the same segment
    assert again(30 * MIB, 28 * MIB) == "P2"  # not the one that it would reserve
    # a segment of 6, one of 2
    cut = long_lived(Program(), 0, 5 * MIB).mark("precise_begin").alloc(1, 2 * MIB).mark("precise_end")
    assert last(long_lived(cut.free(0), 2, 6 * MIB))["level"] == "P1"
    borrowed = long_lived(Program(), 0, 30 * MIB).free(0).alloc(1, 3 * MIB)  # 27 MiB of it remain
    assert last(long_lived(borrowed, 2, 27 * MIB))["level"] == "P2"
    assert last(long_lived(borrowed, 3, 26 * MIB - 512))["level"] == "P2"


def test_a_long_lived_request_reuses_no_part_of_a_segment() -> None:
    # a block of 30 MiB, of the size of a segment, but not whole
    program = long_lived(Program(), 0, 32 * MIB).free(0).alloc(1, 2 * MIB)
    assert last(long_lived(program, 2, 30 * MIB))["level"] == "P2"


def test_a_long_lived_request_borrows_from_no_other_pool() -> None:
    assert last(long_lived(Program().alloc(0, 30 * MIB).free(0), 1, 30 * MIB))["level"] == "P2"


def test_one_candidate_only() -> None:
    program = long_lived(Program(), 0, 30 * MIB)
    long_lived(program, 1, 32 * MIB)
    program.free(0).alloc(2, 3 * MIB).free(1)  # free: 27 MiB, not whole; 32 MiB, whole
    assert last(long_lived(program, 3, 26 * MIB))["level"] == "P2"


def test_streams_have_blocks_of_their_own() -> None:
    assert last(Program().alloc(0, 3 * MIB).free(0).alloc(1, 3 * MIB, 1))["seg"] == 1


def test_of_equal_blocks_the_lowest_address() -> None:
    program = Program().alloc(0, 12 * MIB).alloc(1, 12 * MIB).free(1).free(0).alloc(2, 12 * MIB)
    assert last(program)["seg"] == 0


def test_other_streams_put_nothing_off() -> None:
    program = Program().alloc(0, 12 * MIB)
    program.calls.append((w.RECORD_STREAM, 0, 0, 1))
    assert last(program.free(0).alloc(1, 12 * MIB))["seg"] == 0
    program.calls[2] = (w.FREE_REQUESTED, 0, 0, 0)
    assert last(program)["seg"] == 0


# ---- P2: new memory, and its limits


def test_what_is_left_is_looked_at_only_after_the_first_time() -> None:
    capacity = 300 * MIB
    assert last(Program().alloc(0, 250 * MIB), capacity=capacity)["level"] == "P2"  # nothing is known yet
    program = Program().alloc(0, 60 * MIB).alloc(1, 40 * MIB)
    assert last(program, capacity=capacity)["level"] == "P2"  # 60 + 40 + 200 is exactly everything
    assert last(Program().alloc(0, 60 * MIB).alloc(1, 42 * MIB), capacity=capacity)["level"] == "P5"


def test_the_look_is_an_old_one() -> None:
    program = Program().alloc(0, 20 * MIB).call(w.EXTERNAL, 200 * MIB).alloc(1, 20 * MIB)
    assert last(program, capacity=300 * MIB)["level"] == "P2"  # the memory taken by others in the meantime is unknown
    assert last(program.alloc(2, 20 * MIB), capacity=300 * MIB)["level"] == "P5"  # now it is known


def test_after_others_gave_back_it_goes_on_being_held_back() -> None:
    program = (
        Program()
        .call(w.EXTERNAL, 200 * MIB)
        .alloc(0, 20 * MIB)
        .call(w.EXTERNAL, 0)
        .alloc(1, 20 * MIB)
        .alloc(2, 20 * MIB)
    )
    levels = [row["level"] for row in rows_of(check(program, capacity=300 * MIB))]
    assert levels == ["", "P2", "", "P5", "P2"]  # the retry checks, and the next one knows


def test_a_card_without_bounds_is_never_known() -> None:
    assert last(Program().alloc(0, 20 * MIB).alloc(1, 2000 * MIB), capacity=None)["level"] == "P2"


def test_limits_of_the_process() -> None:
    assert last(Program().alloc(0, 60 * MIB), Settings(fraction=0.5), 100 * MIB)["status"] == "oom"
    assert last(Program().alloc(0, 50 * MIB), Settings(fraction=0.5), 100 * MIB)["status"] == "ok"
    assert last(Program().call(w.SET_FRACTION, 5 * 10**8).alloc(0, 60 * MIB), None, 100 * MIB)["status"] == "oom"
    assert last(Program().alloc(0, 60 * MIB), Settings(alr_max=58 * MIB))["status"] == "oom"
    assert last(Program().alloc(0, 60 * MIB), Settings(alr_max=60 * MIB))["status"] == "ok"


def test_what_a_limit_refuses_is_no_look() -> None:
    program = Program().alloc(0, 90 * MIB).alloc(1, 20 * MIB)
    assert [row["level"] for row in rows_of(check(program, Settings(fraction=0.5), 100 * MIB))] == ["oom", "P2"]


def test_oversize_blocks_are_given_back_for_new_memory() -> None:
    limit = Settings(max_split=40 * MIB, fraction=0.045)  # 90 MiB
    program = Program().alloc(0, 60 * MIB).alloc(1, 3 * MIB).free(0).alloc(2, 30 * MIB)
    found = last(program, limit, 2000 * MIB)
    assert found == {**found, "level": "P2", "device_frees": 1, "retries": 0}
    several = Program().alloc(0, 42 * MIB).alloc(1, 44 * MIB).free(0, 1).alloc(2, 80 * MIB)
    found = last(several, limit, 2000 * MIB)
    assert found == {**found, "level": "P2", "device_frees": 2, "retries": 0}
    too_few = Program().alloc(0, 44 * MIB).alloc(1, 30 * MIB).free(0).alloc(2, 80 * MIB)
    found = last(too_few, limit, 2000 * MIB)
    assert found == {**found, "level": "oom", "device_frees": 1, "retries": 1}


# ---- P3, P4, P5


def full(program: Program) -> Program:
    """Fills the device, so that no memory remains for requests."""
    return program.call(w.SET_FRACTION, 0)


def test_a_long_request_may_cut_the_short_pool_at_last() -> None:
    program = long_lived(full(Program().alloc(0, 30 * MIB).free(0)), 1, 3 * MIB)
    assert last(program) == {**last(program), "level": "P3", "seg": 0, "block": 3 * MIB}


def test_the_third_level_looks_into_the_other_pool_first() -> None:
    program = long_lived(Program().alloc(0, 30 * MIB), 1, 30 * MIB).free(0, 1)
    assert last(long_lived(full(program), 2, 3 * MIB))["seg"] == 0


def test_a_long_request_takes_from_its_own_pool_what_is_not_exact() -> None:
    program = long_lived(full(long_lived(Program(), 0, 30 * MIB).free(0)), 1, 3 * MIB)
    assert last(program) == {**last(program), "level": "P3", "seg": 0}


def test_in_forward_a_short_request_takes_nothing_long_lived_even_at_last() -> None:
    program = full(in_forward(long_lived(Program(), 0, 30 * MIB)).free(0)).alloc(1, 3 * MIB)
    assert last(program) == {**last(program), "level": "oom", "is_long": False}


def test_a_very_large_block_may_be_split_at_the_third_level() -> None:
    huge = -(-VERY_LARGE // (2 * MIB)) * 2 * MIB
    assert last(full(Program().alloc(0, huge).free(0)).alloc(1, 3 * MIB))["level"] == "P3"


def test_a_block_that_is_never_split_stays_forbidden_at_the_third_level() -> None:
    program = full(Program().alloc(0, 60 * MIB).alloc(1, 3 * MIB).free(0)).alloc(2, 30 * MIB)
    found = last(program, Settings(max_split=40 * MIB))
    assert found == {**found, "level": "oom"}


def test_small_requests_cut_large_blocks_at_last() -> None:
    program = full(Program().alloc(0, 3 * MIB)).alloc(1, 512)
    assert last(program) == {**last(program), "level": "P4", "block": 512}
    own_first = full(long_lived(Program().alloc(0, 30 * MIB), 1, 30 * MIB).free(0, 1)).alloc(2, 512)
    assert last(own_first)["seg"] == 0
    waste = full(Program().alloc(0, 18 * MIB + 512)).alloc(1, MIB)  # less than 1 MiB would remain
    assert last(waste)["block"] == 2 * MIB - 512


def test_small_requests_in_forward_may_cut_the_long_lived() -> None:
    program = full(in_forward(long_lived(Program(), 0, 30 * MIB)).free(0)).alloc(1, 512)
    assert last(program)["level"] == "P4"


def test_at_the_end_everything_is_given_back() -> None:
    program = long_lived(Program().alloc(0, 300 * MIB), 1, 400 * MIB).alloc(2, 512).free(0, 1).alloc(3, 600 * MIB)
    found = last(program, capacity=1000 * MIB)
    assert found == {**found, "level": "P5", "retries": 1, "device_frees": 2, "reserved": 602 * MIB}


def test_what_is_given_back_is_not_searched_again() -> None:
    program = Program().alloc(0, 300 * MIB).alloc(1, 3 * MIB).free(0).alloc(2, 990 * MIB)
    found = last(program, capacity=1000 * MIB)
    assert found == {**found, "level": "oom", "ooms": 1, "retries": 1, "reserved": 20 * MIB}


def test_a_failed_request_leaves_no_tensor() -> None:
    assert last(Program().alloc(0, 90 * MIB).free(0), capacity=64 * MIB)["status"] == "skipped"


def test_empty_cache_gives_back_what_is_wholly_free() -> None:
    program = long_lived(Program().alloc(0, 3 * MIB).alloc(1, 30 * MIB), 2, 30 * MIB).free(1, 2)
    assert last(program.call(w.EMPTY_CACHE))["reserved"] == 20 * MIB
    program.calls.pop()
    assert last(program.mark("release").alloc(3, 512))["device_frees"] == 2


# ---- open_memory_optimize, as the source has it


def test_ordinary_blocks_are_taken_at_the_third_level_only() -> None:
    optimized = Settings(memory_optimize=True)
    assert last(Program().alloc(0, 30 * MIB).free(0).alloc(1, 30 * MIB), optimized)["level"] == "P2"
    assert last(full(Program().alloc(0, 30 * MIB).free(0)).alloc(1, 30 * MIB), optimized)["level"] == "P3"
    assert last(Program().alloc(0, 512).free(0).alloc(1, 512), optimized)["level"] == "P2"


def test_a_much_larger_segment_is_taken_unless_something_is_to_come_for_it() -> None:
    optimized, segment = Settings(memory_optimize=True), 1400 * MIB
    assert last(Program().alloc(0, segment).free(0).alloc(1, 3 * MIB), optimized)["level"] == "P1"
    step = Program().mark("step_begin").alloc(0, 3 * MIB, 1).alloc(1, segment).free(1, 0).mark("step_end")
    # lives from the first to the third position; the segment is needed at the second
    step.mark("step_begin").alloc(2, 3 * MIB)
    assert last(step, optimized)["level"] == "P2"
    apart = Program().mark("step_begin").alloc(0, 3 * MIB, 1).free(0).alloc(1, segment).free(1).mark("step_end")
    assert last(apart.mark("step_begin").alloc(2, 3 * MIB), optimized)["level"] == "P1"


def test_the_next_larger_segment_is_taken_where_the_first_is_wanted() -> None:
    optimized, segment = Settings(memory_optimize=True), 1400 * MIB
    sizes = [segment + 2 * MIB * more for more in range(4)]
    for wanted, level in ((1, "P1"), (2, "P1"), (3, "P2")):  # three are checked
        program = Program()
        for tensor, size in enumerate(sizes):
            program.alloc(tensor, size, 0)
        program.mark("step_begin").alloc(10, 3 * MIB, 1)
        for tensor, size in enumerate(sizes[:wanted]):
            program.alloc(11 + tensor, size, 1)
        program.free(*range(11, 11 + wanted), 10, *range(4)).mark("step_end", "step_begin").alloc(20, 3 * MIB)
        found = last(program, optimized)
        assert found == {**found, "level": level, "seg": wanted if level == "P1" else found["seg"]}


def test_the_variable_of_the_cap_is_written_in_front_of_the_settings() -> None:
    program = Program().alloc(0, 40 * MIB).alloc(1, 40 * MIB)
    work, hooks = program.workload(), program.hooks
    for policy in (LIFECYCLE, LIFECYCLE_STACK, LIFETIME_ORACLE):
        free, capped = (
            policy.serve(work, hooks, Scenario("pools", conf))
            for conf in ("", f"ALR_MAX={64 * MIB},default_lc_threshold:512")
        )
        assert (free.ooms[-1], capped.ooms[-1]) == (0, 1)
        assert capped.conf.startswith("ALR_MAX=")
    assert LIFECYCLE.effective_conf("ALR_MAX=5,max_split_size_mb:64") == "max_split_size_mb:64"
    for wrong in ("ALR_MAX=0", "ALR_MAX=x", "ALR_MIN=5"):
        with pytest.raises(MemdiagError):
            LIFECYCLE.serve(work, hooks, Scenario("lifecycle", wrong))
