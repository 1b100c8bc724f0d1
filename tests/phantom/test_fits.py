"""Predictions of whether a program fits are correct for runs that failed early or late, and for the least memory.

bench/fits.py checks many more sizes and writes reports/fits.md.
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
    """Returns one run that failed in the first step and one that failed in a later step."""
    return list(fits.cases(machine, 2))


def test_the_runs_fail_in_the_first_and_in_a_later_step(tried):
    assert [each.step for each in tried] == [0, 1]


def test_every_run_predicted_to_fit_does_fit(tried):
    for each in tried:
        assert each.ran or not each.claims, each


def test_a_recording_of_the_whole_run_predicts_the_result(tried):
    for each in tried:
        assert each.whole == each.ran, each


def test_estimates_of_unrecorded_steps_are_correct(tried):
    for each in tried:
        assert not each.has_estimate or each.estimate == each.ran, each


def test_the_program_runs_on_the_predicted_minimum_and_not_on_less(machine):
    card, room, runs, runs_on_less = fits.smallest(machine, ",context=1GiB", fits.EXPANDABLE)
    assert card - room == 1 << 30
    assert (runs, runs_on_less) == (True, False)
