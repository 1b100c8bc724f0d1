"""The snippet of an offloading plan has the predicted effect on a simulated NPU."""

from tests.phantom.npu_stand_in import PYTHON, needs_npu
from tests.phantom.offloaded import assert_snippet_does_what_the_plan_says

pytestmark = needs_npu


def test_the_snippet_moves_the_planned_bytes_and_lowers_the_peak_as_predicted(tmp_path):
    assert_snippet_does_what_the_plan_says(tmp_path, "npu:910b-64g", PYTHON)
