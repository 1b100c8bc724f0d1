"""The snippet of an offloading plan has the predicted effect, recorded on the CPU."""

import os
import sys
from importlib.util import find_spec

import pytest

from tests.phantom.offloaded import assert_snippet_does_what_the_plan_says

PYTHON = os.environ.get("MEMDIAG_TEST_TORCH_PYTHON") or (sys.executable if find_spec("torch") else "")


@pytest.mark.skipif(
    not PYTHON, reason="there is no torch here, and MEMDIAG_TEST_TORCH_PYTHON names no Python that has it"
)
def test_the_snippet_moves_the_planned_bytes_and_lowers_the_peak_as_predicted(tmp_path):
    assert_snippet_does_what_the_plan_says(tmp_path, "cpu", PYTHON)
