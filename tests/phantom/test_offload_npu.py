"""What a plan for offloading says of its snippet is what the snippet does, on a phantom NPU."""

from tests.phantom.npu_stand_in import PYTHON, needs_npu
from tests.phantom.offloaded import assert_snippet_does_what_the_plan_says

pytestmark = needs_npu


def test_the_snippet_moves_what_the_plan_says_and_the_peak_falls_as_predicted(tmp_path):
    assert_snippet_does_what_the_plan_says(tmp_path, "npu:910b-64g", PYTHON)
