"""Each mark and each branch of the look-ups has its effect on the predicted lifetimes.

The reference runs every program too.
"""

from __future__ import annotations

from tests.allocator.policies.lifecycle.lifecycle_program import Program, by_reference, check
from tests.allocator.policies.lifecycle.lifecycle_reference import MIB, Settings

A, B, C = 3 * MIB, 5 * MIB, 7 * MIB  # three requested sizes


def started() -> Program:
    """Returns a program whose set-up is over: the next forward window counts."""
    return Program().mark("forward_begin", "forward_end")


def decided(program: Program, settings: Settings | None = None) -> str:
    """Returns one letter per allocation: L long-lived, d not; equal in reference and machine."""
    lifecycle = check(program, settings).lifecycle
    assert lifecycle is not None
    return "".join("L" if long else "d" for long in lifecycle.is_long[lifecycle.level > 0].tolist())


# ---- phases


def test_everything_is_long_lived_by_phase() -> None:
    program = Program().mark("precise_begin").alloc(0, A).alloc(1, 512).mark("precise_end").alloc(2, A)
    assert decided(program) == "LLd"


def test_without_windows_everything_is_short_lived() -> None:
    assert decided(Program().alloc(0, A).alloc(1, B)) == "dd"


def test_the_threshold_outweighs_the_phase_and_compares_blocks() -> None:
    program = Program().mark("precise_begin").alloc(0, 1024).alloc(1, 1025).alloc(2, 513)
    assert decided(program, Settings(default_lc_threshold=1024.0)) == "dLd"
    assert decided(program, Settings(default_lc_threshold=1023.9)) == "LLL"


def test_the_first_start_of_a_forward_raises_no_flag() -> None:
    assert decided(Program().mark("forward_begin").alloc(0, A).mark("forward_end")) == "d"
    assert decided(started().mark("forward_begin").alloc(0, A)) == "L"


def test_starts_within_a_precise_phase_do_not_count() -> None:
    within = Program().mark("precise_begin", "forward_begin", "forward_end", "precise_end")
    assert decided(within.mark("forward_begin").alloc(0, A)) == "d"  # this is the first that counts


def test_a_start_within_a_precise_phase_sets_the_place_back() -> None:
    program = started().mark("forward_begin").alloc(0, A).alloc(1, B).free(1).mark("forward_end")
    program.mark("forward_begin", "precise_begin").alloc(2, C).mark("forward_begin", "precise_end")
    program.alloc(3, B)  # the position is 1 again, and B was seen at 2
    assert decided(program) == "LLLd"


def test_a_flag_that_is_up_stays_up_through_a_precise_phase() -> None:
    program = started().mark("forward_begin", "precise_begin").alloc(0, A).mark("precise_end").alloc(1, B)
    assert decided(program) == "LL"  # the second by the empty table of the last window


# ---- forward windows


def test_the_first_forward_is_all_long_lived() -> None:
    program = started().mark("forward_begin").alloc(0, A).alloc(1, B).free(0, 1).mark("forward_end")
    assert decided(program) == "LL"


def test_what_outlived_the_last_window_is_long_lived_in_the_next() -> None:
    program = started().mark("forward_begin").alloc(0, A).alloc(1, B).free(1).mark("forward_end")
    program.mark("forward_begin").alloc(2, A).alloc(3, B)
    assert decided(program) == "LLLd"


def test_a_free_after_the_window_does_not_count() -> None:
    program = started().mark("forward_begin").alloc(0, A).mark("forward_end").free(0)
    assert decided(program.mark("forward_begin").alloc(1, A)) == "LL"


def test_a_free_in_a_later_window_does_not_count() -> None:
    program = started().mark("forward_begin").alloc(0, A).mark("forward_end")
    program.mark("forward_begin").free(0).alloc(1, A).mark("forward_end")
    assert decided(program.mark("forward_begin").alloc(2, A)) == "LLL"


def test_what_was_made_outside_leaves_no_entry() -> None:
    program = started().mark("forward_begin").alloc(0, A).mark("forward_end").alloc(1, B)
    program.mark("forward_begin").free(1).alloc(2, B)
    assert decided(program) == "Ldd"


def test_sizes_in_forward_are_those_asked_for() -> None:
    program = started().mark("forward_begin").alloc(0, A).mark("forward_end")
    assert decided(program.mark("forward_begin").alloc(1, A - 1)) == "Ld"  # the same block, another request


def test_the_nearest_earlier_entry_decides() -> None:
    # long, short, long
    program = started().mark("forward_begin").alloc(0, A).alloc(1, A).free(1).alloc(2, A).mark("forward_end")
    assert decided(program.mark("forward_begin").alloc(3, A).alloc(4, A).alloc(5, A).alloc(6, A)) == "LLLLdLL"


def test_an_entry_can_be_used_again_and_again() -> None:
    program = started().mark("forward_begin").alloc(0, A).mark("forward_end")
    assert decided(program.mark("forward_begin").alloc(1, A).alloc(2, A).alloc(3, A)) == "LLLL"


def test_an_entry_at_a_later_place_is_not_found() -> None:
    program = started().mark("forward_begin").alloc(0, B).free(0).alloc(1, A).mark("forward_end")
    assert decided(program.mark("forward_begin").alloc(2, A)) == "LLd"


def test_allocations_of_any_phase_move_the_place_on() -> None:
    program = started().alloc(9, C).mark("forward_begin").alloc(0, B).free(0).alloc(1, A).mark("forward_end")
    program.mark("forward_begin", "precise_begin").alloc(2, C).mark("precise_end").alloc(3, A)
    assert decided(program) == "dLLLL"


def test_a_failed_request_moves_nothing() -> None:
    program = started().mark("forward_begin").alloc(0, B).free(0).alloc(1, A).mark("forward_end")
    program.free(1).mark("forward_begin").alloc(2, 4096 * MIB).alloc(3, A)
    lifecycle = check(program, capacity=64 * MIB).lifecycle
    assert lifecycle is not None
    assert not lifecycle.is_long[-1]  # A was seen at the second position, and this is still the first


def test_windows_within_windows_end_the_outer_one() -> None:
    program = (
        started().mark("forward_begin").alloc(0, A).mark("forward_begin").alloc(1, B).mark("forward_end").alloc(2, C)
    )
    # after an end that recorded nothing
    assert decided(program.mark("forward_end", "forward_begin").alloc(3, A)) == "LLdL"


def test_an_inner_window_sets_the_place_back_and_adds_to_the_entries() -> None:
    program = started().mark("forward_begin").alloc(0, A).mark("forward_begin").alloc(1, B).mark("forward_end")
    program.mark("forward_begin").alloc(2, B).alloc(3, A)  # both were seen at the first position
    assert decided(program) == "LLLL"


def test_twins_of_a_nested_window_are_one_entry() -> None:
    program = started().mark("forward_begin").alloc(0, A).mark("forward_begin").alloc(1, A).free(1).mark("forward_end")
    assert decided(program.mark("forward_begin").alloc(2, A)) == "LLd"  # the free removed the end from both
    program = started().mark("forward_begin").alloc(0, A).free(0).mark("forward_begin").alloc(1, A).mark("forward_end")
    assert decided(program.mark("forward_begin").alloc(2, A)) == "LLL"


# ---- history of forward windows


def twice(extra: int) -> Program:
    """Returns a window of A, then one that begins with ``extra`` and has A too."""
    program = started().mark("forward_begin").alloc(0, A).mark("forward_end")
    return program.mark("forward_begin").alloc(1, extra).alloc(2, A).mark("forward_end")


def test_a_window_that_met_something_new_is_remembered() -> None:
    program = twice(B).mark("forward_begin").alloc(3, A).mark("forward_end")  # the last window knows A only
    assert decided(program.mark("forward_begin").alloc(4, B)) == "LdLdL"


def test_a_window_that_met_nothing_new_is_forgotten() -> None:
    program = twice(A).mark("forward_begin").alloc(3, A).mark("forward_end")
    allocator, _ = by_reference(program)
    assert allocator.lifetimes.forward.history == []
    check(program)


def test_the_last_window_outweighs_the_remembered_and_of_those_the_oldest() -> None:
    program = twice(B)  # recorded: B outlived its window
    program.mark("forward_begin").alloc(3, A).alloc(4, C).alloc(5, B).free(5).mark("forward_end")  # recorded: B did not
    program.mark("forward_begin").alloc(6, A).mark("forward_end")
    program.mark("forward_begin").alloc(7, A).alloc(8, A).alloc(9, B).mark("forward_end")  # by the oldest: long
    program.mark("forward_begin").alloc(10, A).alloc(11, A).alloc(12, B).free(12).mark("forward_end")
    program.mark("forward_begin").alloc(13, A).alloc(14, A).alloc(15, B)  # by the last one: short
    letters = decided(program)
    assert letters[9] == "L"
    assert letters[15] == "d"


def test_a_remembered_window_is_passed_over_where_it_saw_the_size_later_only() -> None:
    program = started().mark("forward_begin").alloc(0, A).alloc(1, A).alloc(2, A).mark("forward_end")
    program.mark("forward_begin").alloc(3, A).alloc(4, A).alloc(5, B).mark("forward_end")  # B third: recorded
    program.mark("forward_begin").alloc(6, B).free(6).mark("forward_end")  # B first: not found, and recorded too
    program.mark("forward_begin").alloc(7, A).mark("forward_end")
    # first by the younger, then by the older
    program.mark("forward_begin").alloc(8, B).alloc(9, A).alloc(10, A).alloc(11, B)
    letters = decided(program)
    assert letters[8] == "d"
    assert letters[11] == "L"


def test_a_miss_after_many_look_ups_marks_nothing() -> None:
    program = started().mark("forward_begin").alloc(0, A).mark("forward_end")
    # the third look-up of a window of one
    program.mark("forward_begin").alloc(1, A).alloc(2, A).alloc(3, B).mark("forward_end")
    allocator, _ = by_reference(program)
    assert allocator.lifetimes.forward.history == []
    program.mark("forward_begin").alloc(4, A).mark("forward_end", "forward_begin").alloc(5, B)
    assert decided(program)[5] == "d"


# ---- steps


def test_the_first_step_predicts_nothing() -> None:
    assert decided(Program().mark("step_begin").alloc(0, A).alloc(1, B)) == "dd"


def test_what_outlives_a_step_is_long_lived_in_the_next() -> None:
    program = Program().mark("step_begin").alloc(0, A).alloc(1, B).free(1).mark("step_end")
    assert decided(program.mark("step_begin").alloc(2, A).alloc(3, B)) == "ddLd"


def test_sizes_in_steps_are_those_of_blocks() -> None:
    program = Program().mark("step_begin").alloc(0, A).mark("step_end", "step_begin").alloc(1, A - 1)
    assert decided(program) == "dL"


def test_the_first_step_is_always_remembered() -> None:
    program = (
        Program().mark("step_begin").alloc(0, A).mark("step_end", "step_begin").alloc(1, B).free(1).mark("step_end")
    )
    assert decided(program.mark("step_begin").alloc(2, A)) == "ddL"


def test_a_step_promotes_and_never_demotes() -> None:
    # outlives forward, not the step
    program = started().mark("step_begin", "forward_begin").alloc(0, A).mark("forward_end").free(0)
    program.mark("step_end", "step_begin", "forward_begin").alloc(1, A)
    assert decided(program) == "LL"
    program = started().mark("step_begin").alloc(0, A).mark("forward_begin").alloc(1, B).mark("forward_end", "step_end")
    program.mark("step_begin", "forward_begin").alloc(2, A)  # not seen in forward, but it outlived the step
    assert decided(program) == "dLL"


def test_a_miss_in_forward_and_one_in_the_step_are_marked_apart() -> None:
    program = started().mark("step_begin", "forward_begin").alloc(0, A).mark("forward_end", "step_end")
    program.mark("step_begin", "forward_begin").alloc(1, B).mark("forward_end", "step_end").alloc(2, A)
    allocator, _ = by_reference(program)
    assert len(allocator.lifetimes.forward.history) == 1
    assert len(allocator.lifetimes.step.history) == 2
    check(program)


def test_the_precise_phase_of_a_step_is_recorded_but_not_looked_up() -> None:
    program = Program().mark("step_begin", "precise_begin").alloc(0, A).mark("precise_end", "step_end")
    allocator, _ = by_reference(program)
    assert allocator.lifetimes.step.history == []  # no look-up, so no miss
    assert decided(program.mark("step_begin").alloc(1, A)) == "LL"
