"""Checks of distributions pass if their values were not computed, and leave the allocator's events unchanged."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from memdiag.phantom.launch import compute_limits
from tests.phantom import cuda_stand_in, npu_stand_in

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("programs") / "checked.py"
_INVALID = ["Expected parameter scale", "normal expects all elements of std >= 0.0"]


def on_cuda(folder, **more):
    return cuda_stand_in.run([PROGRAM, "cuda"], folder, **more)


def on_npu(folder, **more):
    return npu_stand_in.on_phantom("npu:910b-64g", PROGRAM, "npu", cwd=folder, **more)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(on_npu, marks=npu_stand_in.needs_npu, id="npu"),
        pytest.param(on_cuda, marks=cuda_stand_in.needs_torch, id="cuda"),
    ],
)
def test_checks_of_distributions_pass_with_the_same_allocations(run, tmp_path):
    """With computed values, PyTorch's own code runs to its end, and finds parameters that are invalid."""
    made_up, computed = (run(tmp_path, **compute_limits(text)) for text in ("none", "small"))
    assert made_up.returncode == computed.returncode == 0, made_up.stderr[-2000:] + computed.stderr[-2000:]
    made_up, computed = json.loads(made_up.stdout), json.loads(computed.stdout)
    assert computed["num_events"] > 100
    assert made_up["events"] == computed["events"]
    assert made_up["gradient"]
    assert computed["gradient"]
    assert made_up["refused"] == _INVALID  # those on the CPU
    assert computed["refused"] == _INVALID * 2


_COMPILED = """
import sys, torch
from memdiag.phantom.boot import validation
validation.begin(sys.modules["torch.distributions.distribution"])
validation.begin(torch)

@torch.compile(fullgraph=True, backend="eager")
def sample(mean):
    return torch.distributions.Normal(mean, mean.exp()).log_prob(torch.normal(mean, 1.0))

print(tuple(sample(torch.zeros(3)).shape))
"""


@npu_stand_in.needs_npu
def test_compiled_code_is_still_one_graph(tmp_path):
    done = subprocess.run(
        [npu_stand_in.PYTHON, "-c", _COMPILED],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    assert done.stdout == "(3,)\n", done.stderr[-2000:]
