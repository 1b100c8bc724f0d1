"""The Pythons in which tests can train: those named in the environment, else those that `make test` creates.

* MEMDIAG_TEST_CUDA_PYTHON: a Python with a CUDA build of torch. Default: the one that runs the tests, if its torch is
  such a build.
* MEMDIAG_TEST_NPU_PYTHON: a Python with torch_npu. Default: that of .venv-npu, which exists if torch is a build for the
  CPU.
"""

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from memdiag.phantom.cuda.standin import Torch
from tests.forking import python_for

_NPU = Path(__file__).parents[1] / ".venv-npu" / "bin" / "python"


def own_cuda_python() -> str:
    """Returns the Python that runs the tests if it has a CUDA build of torch, else ""."""
    spec = importlib.util.find_spec("torch")
    is_cuda = spec is not None and Torch(Path(spec.submodule_search_locations[0]), "").cuda != (0, 0)
    return sys.executable if is_cuda else ""


def own_npu_python() -> str:
    """Returns the Python of .venv-npu, or ""."""
    return str(_NPU) if _NPU.exists() else ""


def cuda_python() -> str:
    """Returns a Python with a CUDA build of torch, or ""."""
    return os.environ.get("MEMDIAG_TEST_CUDA_PYTHON") or own_cuda_python()


def npu_python() -> str:
    """Returns a Python with torch_npu, or ""."""
    return os.environ.get("MEMDIAG_TEST_NPU_PYTHON") or own_npu_python()


def npu_command() -> str:
    """Returns a command that runs programs as ``npu_python`` does, in copies of a process (tests/forking), or ""."""
    return npu_python() and python_for(npu_python(), "torch_npu")


@cache
def finds_device(command: tuple[str, ...], device: str) -> bool:
    """Returns whether the torch of a Python, given as its command, finds a real "cuda" or "npu" device."""
    load = {"cuda": "torch", "npu": "torch, torch_npu"}[device]
    find = f"import sys, {load}; sys.exit(not torch.{device}.is_available())"
    return subprocess.run([*command, "-c", find], capture_output=True, check=False).returncode == 0


NO_CUDA = (
    "there is no Python with a CUDA build of torch: neither the one that runs the tests nor MEMDIAG_TEST_CUDA_PYTHON"
)
NO_NPU = "there is no Python with torch_npu: neither .venv-npu nor MEMDIAG_TEST_NPU_PYTHON"
