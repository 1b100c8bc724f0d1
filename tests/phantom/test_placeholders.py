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
ON_DEVICE = """
import torch
print(torch.zeros(4, device="cuda").sum().item(), torch.cuda.get_device_name())
double = torch.cuda.jiterator._create_jit_fn("template <typename T> T twice(T x) { return x + x; }")
print(double(torch.zeros(4, device="cuda")).tolist())  # PyTorch compiles it with NVRTC
with torch.profiler.profile(profile_memory=True) as profile:  # asks CUPTI for kernels, and goes on without
    torch.zeros(4, device="cuda")
assert any(event.name == "aten::zeros" for event in profile.events())
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Returns a Python with a hard-linked copy of torch, and the other packages of the original without the toolkit.

    torch also looks for the toolkit in every folder of Python's path, so the original folder must not be one of them.
    """
    installed = installed_for([PYTHON], os.environ)
    original = Path(installed.folder_of("torch"))
    here = tmp_path_factory.mktemp("environment")
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", here], check=True)
    site = next(here.glob("lib/python*/site-packages"))
    for path in original.parent.iterdir():
        if path.name not in ("torch", "nvidia", "__pycache__") and not (site / path.name).exists():
            (site / path.name).symlink_to(path)
    try:
        shutil.copytree(
            original, site / "torch", copy_function=os.link, ignore=shutil.ignore_patterns("__pycache__", PLACEHOLDERS)
        )
    except OSError as error:  # shutil.Error if the folder is on another file system
        pytest.skip(f"torch cannot be copied by links: {str(error)[:200]}")
    for path in (site / "torch" / "lib").iterdir():
        if path.name in Torch(original, installed.version_of("torch")).placeholders:
            path.unlink()
    return here / "bin" / "python"


def run(python, program, environment):
    return subprocess.run(
        [python, "-c", program], env=environment, capture_output=True, text=True, check=False, cwd=python.parent
    )


@needs_torch
def test_placeholders_make_torch_importable_and_hide_no_phantom_device(copy, tmp_path):
    torch = Path(installed_for([str(copy)], os.environ).folder_of("torch"))
    names = placeholders.put_in_place(str(copy))
    assert {"libcuda.so.1", "libcudart.so.13", "libcurand.so.10"} <= set(names) or "libcudart.so.12" in names
    assert Torch(torch, "").toolkit(names[0]) == []  # a placeholder must not count as the real library

    done = run(copy, WITHOUT_DEVICE, dict(os.environ))
    assert done.returncode == 0, done.stderr[-2000:]
    available, devices, gradient, mapped = json.loads(done.stdout)
    assert (available, devices, gradient) == (False, 0, [2.0, 2.0, 2.0])
    assert [Path(path).parent for path in mapped] == [torch / "lib"]

    environment = launch.environment_for(choose("cuda:h100-80g"), [str(copy)])
    done = run(copy, ON_DEVICE, {**environment, "PYTORCH_KERNEL_CACHE_PATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "0.0 NVIDIA H100 80GB HBM3\n[0.0, 0.0, 0.0, 0.0]\n"
    assert not list(tmp_path.iterdir())  # a real device would load these kernels later


@needs_torch
def test_placeholders_can_be_put_in_place_twice(copy):
    assert placeholders.put_in_place(str(copy)) == placeholders.put_in_place(str(copy))
