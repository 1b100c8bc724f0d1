"""The snippet of an offloading plan has the predicted effect on a simulated CUDA device."""

from tests.phantom.cuda_stand_in import PYTHON, needs_torch
from tests.phantom.offloaded import assert_snippet_does_what_the_plan_says

pytestmark = needs_torch


def test_the_snippet_moves_the_planned_bytes_and_lowers_the_peak_as_predicted(tmp_path):
    assert_snippet_does_what_the_plan_says(tmp_path, "cuda:h100-80g", PYTHON)
