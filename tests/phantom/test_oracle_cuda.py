"""torch's own CUDA allocator on the phantom device does what was recorded of it: every place, every byte, every failure.

One of the ten settings of each program; all: ``python -m tests.phantom.cuda_rows --python VENV/bin/python``, some
minutes.
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
def test_every_row_comes_out(path, setting, rows):
    result = rows.of(path, setting)
    if "not from Python" in result.said:
        pytest.skip(result.said)
    assert (result.said, result.differs) == ("", ())
    assert result.num_calls


def test_a_row_that_differs_is_seen():
    assert differences({"seg": range(3)}, {"seg": [0, 1]}) == []
    assert differences({"seg": [0, 1, 7]}, {"seg": [0, 1, 2]}) == ["seg in 1 calls, first 2: 7 and not 2"]
