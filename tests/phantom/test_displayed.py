"""Values that a program only displays decide nothing, so they do not count as values that it read."""

import json
from pathlib import Path

import pytest

from tests.phantom import cuda_stand_in, npu_stand_in

PROGRAM = Path(__file__).with_name("programs") / "displayed.py"


def on_cuda(folder):
    return cuda_stand_in.run([PROGRAM, "cuda"], folder)


def on_npu(folder):
    return npu_stand_in.on_phantom("npu:910b-64g", PROGRAM, "npu", cwd=folder)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(on_npu, marks=npu_stand_in.needs_npu, id="npu"),
        pytest.param(on_cuda, marks=cuda_stand_in.needs_torch, id="cuda"),
    ],
)
def test_displayed_values_do_not_count(run, tmp_path):
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {"displayed": [0, 0], "read": [1, 1]}
