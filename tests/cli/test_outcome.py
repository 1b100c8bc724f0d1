"""``memdiag try`` reports if the new run ended, ran out of memory again, or failed otherwise."""

from __future__ import annotations

import pytest

from memdiag.render.try_run.terminal import words
from memdiag.results.tried import LastFailure
from memdiag.runs.outcome import outcome_of
from memdiag.units import MIB

BEFORE = LastFailure(64 * MIB, 0, "forward", 100, is_last=True)


def later(num_allocations, *, is_last=True):
    return LastFailure(64 * MIB, 1, "backward", num_allocations, is_last=is_last)


@pytest.mark.parametrize(
    ("before", "now", "status", "outcome", "said"),
    [
        (BEFORE, None, 0, "runs_to_its_end", "the run completes; reserved peak 1.00 MiB"),
        (BEFORE, later(200, is_last=False), 0, "runs_to_its_end", "because the program handles a failed allocation"),
        (
            BEFORE,
            later(227),
            1,
            "fails_again",
            "fails again in step 1 (backward), 127 allocations later than the recorded run: 64.00 MiB cannot be",
        ),
        (BEFORE, later(101), 1, "fails_again", "1 allocation later than"),
        (BEFORE, later(100), 1, "fails_at_the_same_allocation", "at the same allocation"),
        (BEFORE, later(99), 1, "fails_earlier", "earlier than the recorded run"),
        (None, later(99), 1, "fails_again", "although the recorded run did not"),
        (BEFORE, None, 3, "ends_with_another_error", "ends with status 3, for a reason other than device memory"),
        (BEFORE, later(200, is_last=False), 1, "ends_with_another_error", "for a reason other than device memory"),
    ],
)
def test_what_became_of_a_run(before, now, status, outcome, said):
    assert outcome_of(before, now, status) == outcome
    assert said in words(outcome, before, now, MIB, status)
