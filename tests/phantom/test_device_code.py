"""A simulated device runs the code that PyTorch contains for it, and fails like the real device if there is no code."""

from pathlib import Path

import pytest

from memdiag.phantom.profiles import profiles
from tests.phantom.cuda_stand_in import needs_torch, run

PROGRAM = Path(__file__).with_name("programs") / "operators_cuda.py"
CUDA = [profile.full_name for profile in profiles() if profile.backend == "cuda"]

pytestmark = needs_torch


@pytest.mark.parametrize("device", CUDA)
def test_operators_run_unless_torch_has_no_code_for_the_device(device, tmp_path):
    done = run([PROGRAM], tmp_path, device=device)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout in {"ok\n", "no kernels\n"}
    named = "a library of this program has no kernels for" in done.stderr
    assert named == (done.stdout == "no kernels\n")


def test_a_device_without_code_of_its_own_runs_older_code_of_its_generation(tmp_path):
    done = run([PROGRAM], tmp_path, device="cuda:h100-80g,capability=8.7")
    assert done.stdout == "ok\n", done.stderr[-2000:]
