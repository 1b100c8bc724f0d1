"""Tests marked with a simulated device, in a pytest of a Python with a CUDA build of torch."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys

import pytest

from tests.pythons import NO_CUDA, cuda_python

TESTS = """
import os
import pytest
import torch


@pytest.fixture
def weights():
    return torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.memdiag(device="cuda:h100-80g", peak_allocated="96MiB", baseline="memory.json")
@pytest.mark.parametrize("mebibytes", [16, 64])
def test_step(weights, mebibytes):
    kept = torch.zeros(mebibytes << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.memdiag(device="cuda:h100-80g", peak="1GiB")
def test_that_ends_the_process():
    os._exit(9)


@pytest.mark.memdiag(device="cuda:h100-80g", peak="1GiB")
@pytest.mark.skip(reason="not now")
def test_that_is_skipped():
    pass


@pytest.mark.memdiag(device="cuda:h-of-another-maker", peak="1GiB")
def test_on_an_unknown_device():
    pass


@pytest.mark.memdiag(device="cpu", backend="cpu", peak="1GiB")
def test_with_two_devices():
    pass


def test_beside_them():
    assert not torch.cuda.is_available()
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python with a CUDA build of torch, and pytest and memdiag's packages from the environment of these tests."""
    cuda = cuda_python()
    if not cuda:
        pytest.skip(NO_CUDA)
    asked = [cuda, "-c", "import site, sys; print(sys.version_info[:2], *site.getsitepackages(), sep='\\n')"]
    version, *folders = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    if version != str(sys.version_info[:2]):
        pytest.skip(f"{cuda} is another version of Python than that of the tests, whose packages it needs")
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([cuda, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "others.pth").write_text("\n".join([*folders, *site.getsitepackages()]) + "\n")
    return str(folder / "bin" / "python")


def test_a_marked_test_runs_on_a_simulated_device(python, tmp_path, root):
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "",
    }
    command = [python, "-m", "pytest", "-p", "memdiag.gates.pytest_plugin", "-v", "--memdiag-update"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    outcomes = dict(line.split()[:2] for line in said.splitlines() if line.startswith("test_it.py::") and "%]" in line)
    assert outcomes == {
        "test_it.py::test_step[16]": "PASSED",
        "test_it.py::test_step[64]": "FAILED",
        "test_it.py::test_that_ends_the_process": "FAILED",
        "test_it.py::test_that_is_skipped": "SKIPPED",
        "test_it.py::test_on_an_unknown_device": "FAILED",
        "test_it.py::test_with_two_devices": "FAILED",
        "test_it.py::test_beside_them": "PASSED",
    }, said
    assert "memdiag: peak_allocated is 128.00 MiB: 32.00 MiB over the budget of 96.00 MiB" in said
    assert "    64.00 MiB tensors of test_it.py:15 test_step (1 tensor)" in said
    assert "  Peak 128.00 MiB allocated in 128.00 MiB reserved" in said, "the headline of the report"
    assert "  MD" in said, "its first finding"
    assert "ended with exit status 9 before the test had a result" in said
    assert "memdiag: cuda:h-of-another-maker: memdiag does not know this device" in said
    assert "has both device and backend" in said
    traces = json.loads((tmp_path / "memory.json").read_text())["traces"]
    entry = traces["test_it.py::test_step[16]"]
    assert entry["metrics"]["peak_allocated"] == 80 << 20
    assert entry["facts"]["phantom device"] == "yes"
