"""A CUDA build of torch without NVIDIA's toolkit imports with placeholder libraries and runs on simulated devices."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from memdiag.phantom import launch
from memdiag.phantom.cuda import placeholders
from memdiag.phantom.cuda.standin import PLACEHOLDERS, Torch
from memdiag.phantom.installed import installed_for
from memdiag.phantom.profiles import choose
from tests.phantom.cuda_stand_in import PYTHON, needs_torch

WITHOUT_DEVICE = """
import json, torch
x = torch.ones(3, requires_grad=True)
(x * x).sum().backward()
lines = [line.split()[-1] for line in open("/proc/self/maps") if "/libcudart.so" in line]
print(json.dumps([torch.cuda.is_available(), torch.cuda.device_count(), x.grad.tolist(), sorted(set(lines))]))
"""
ON_DEVICE = "import torch; print(torch.zeros(4, device='cuda').sum().item(), torch.cuda.get_device_name())"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Returns a folder with a hard-linked copy of torch that cannot find the toolkit installed next to the original."""
    installed = installed_for([PYTHON], os.environ)
    original = Path(installed.folder_of("torch"))
    here = tmp_path_factory.mktemp("site")
    try:
        shutil.copytree(
            original, here / "torch", copy_function=os.link, ignore=shutil.ignore_patterns("__pycache__", PLACEHOLDERS)
        )
    except OSError as error:  # shutil.Error if the folder is on another file system
        pytest.skip(f"torch cannot be copied by links: {str(error)[:200]}")
    for path in (here / "torch" / "lib").iterdir():
        if path.name in Torch(original, installed.version_of("torch")).placeholders:
            path.unlink()
    return here


def python(copy, program, environment):
    return subprocess.run(
        [PYTHON, "-c", program], env=environment, capture_output=True, text=True, check=False, cwd=copy
    )


@needs_torch
def test_placeholders_make_torch_importable_and_hide_no_phantom_device(copy, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(copy))
    names = placeholders.put_in_place(PYTHON)
    assert {"libcuda.so.1", "libcudart.so.13", "libcurand.so.10"} <= set(names) or "libcudart.so.12" in names
    assert Torch(copy / "torch", "").toolkit(names[0]) == []  # a placeholder must not count as the real library

    done = python(copy, WITHOUT_DEVICE, dict(os.environ))
    assert done.returncode == 0, done.stderr[-2000:]
    available, devices, gradient, mapped = json.loads(done.stdout)
    assert (available, devices, gradient) == (False, 0, [2.0, 2.0, 2.0])
    assert [Path(path).parent for path in mapped] == [copy / "torch" / "lib"]

    done = python(copy, ON_DEVICE, launch.environment_for(choose("cuda:h100-80g"), [PYTHON]))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "0.0 NVIDIA H100 80GB HBM3\n"


@needs_torch
def test_placeholders_can_be_put_in_place_twice(copy, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(copy))
    assert placeholders.put_in_place(PYTHON) == placeholders.put_in_place(PYTHON)
