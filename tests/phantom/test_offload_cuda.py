"""What a plan for offloading says of its snippet is what the snippet does, on a phantom CUDA device."""

from tests.phantom.cuda_stand_in import PYTHON, needs_torch
from tests.phantom.offloaded import assert_snippet_does_what_the_plan_says

pytestmark = needs_torch


def test_the_snippet_moves_what_the_plan_says_and_the_peak_falls_as_predicted(tmp_path):
    assert_snippet_does_what_the_plan_says(tmp_path, "cuda:h100-80g", PYTHON)
