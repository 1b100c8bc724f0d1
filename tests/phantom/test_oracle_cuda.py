"""PyTorch's CUDA allocator on the simulated device matches the recording in every address, size and failure.

The tests run one of the ten settings of each program. To run all of them, which takes a few minutes, use
``python -m tests.phantom.cuda_rows --python VENV/bin/python``.
"""

from pathlib import Path

import pytest

from tests.phantom.cuda_rows import FILES, Rows, differences, some
from tests.phantom.cuda_stand_in import PYTHON, needs_torch

pytestmark = [
    needs_torch,
    pytest.mark.skipif(not FILES, reason="the recorded rows (../shared/data/oracle) are not here"),
]


@pytest.fixture(scope="module")
def rows():
    made = Rows(PYTHON)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("path", "setting"), list(some(1)), ids=lambda value: value.stem if isinstance(value, Path) else str(value)
)
def test_every_call_matches_the_recording(path, setting, rows):
    result = rows.of(path, setting)
    if "not from Python" in result.said:
        pytest.skip(result.said)
    assert (result.said, result.differs) == ("", ())
    assert result.num_calls


def test_a_differing_row_is_reported():
    assert differences({"seg": range(3)}, {"seg": [0, 1]}) == []
    assert differences({"seg": [0, 1, 7]}, {"seg": [0, 1, 2]}) == ["seg in 1 calls, first 2: 7 and not 2"]
