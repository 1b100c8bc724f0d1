"""Claims about fitting come true: for recordings that fail in the first and in the second step, and for the smallest card.

bench/fits.py does the same for many more sizes and writes reports/fits.md.
"""

import fits
import pytest

from tests.phantom import cuda_stand_in, npu_stand_in


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("npu", npu_stand_in.PYTHON), marks=npu_stand_in.needs_npu, id="npu"),
        pytest.param(("cuda", cuda_stand_in.PYTHON), marks=cuda_stand_in.needs_torch, id="cuda"),
    ],
)
def machine(request, tmp_path_factory):
    return fits.Machine(*request.param, tmp_path_factory.mktemp("fits"))


@pytest.fixture(scope="module")
def tried(machine):
    """Runs that failed in the first step and in a later one."""
    return list(fits.cases(machine, 2))


def test_they_fail_in_the_first_step_and_later(tried):
    assert [each.step for each in tried] == [0, 1]


def test_no_run_is_said_to_fit_that_does_not(tried):
    for each in tried:
        assert each.ran or not each.claims, each


def test_the_recording_of_the_whole_run_tells(tried):
    for each in tried:
        assert each.whole == each.ran, each


def test_estimates_of_the_rest_come_true(tried):
    for each in tried:
        assert not each.has_estimate or each.estimate == each.ran, each


def test_the_smallest_card_is_the_real_one(machine):
    card, room, runs, runs_on_less = fits.smallest(machine, ",context=1GiB", fits.EXPANDABLE)
    assert card - room == 1 << 30
    assert (runs, runs_on_less) == (True, False)
