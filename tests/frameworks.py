"""Runs programs in a Python that has the frameworks.

The frameworks are not among memdiag's dependencies: MEMDIAG_TEST_TRAINERS_PYTHON names a Python that has transformers,
lightning, accelerate, ray[train], tensorboard, wandb and mlflow. Without it, the Python that runs the tests is used for
programs whose packages it has, such as notebooks. If the torch is a build for CUDA, the programs run on a simulated
device.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from memdiag.phantom import launch as phantom
from memdiag.phantom import profiles
from tests import forking

ROOT = Path(__file__).parents[1]
_LEFT_OUT = ("MEMDIAG", "PYTHON", "RANK", "WORLD_SIZE", "LOCAL_", "TORCHELASTIC")
_IS_CUDA = "import torch; raise SystemExit(0 if torch.version.cuda else 1)"


def environment() -> dict[str, str]:
    """Returns the environment of a program that imports this memdiag."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": "0"}


@cache
def _has(python: str, modules: tuple[str, ...]) -> bool:
    find = f"import importlib.util as u; raise SystemExit(any(u.find_spec(m) is None for m in {modules!r}))"
    return subprocess.run([python, "-c", find], env=environment(), timeout=100, check=False).returncode == 0


def trainers_python(*modules: str) -> str:
    """Returns the Python with the frameworks, or skips the test.

    Args:
        modules: Packages that the test needs.
    """
    python = os.environ.get("MEMDIAG_TEST_TRAINERS_PYTHON") or sys.executable
    if not _has(python, modules):
        pytest.skip(f"needs {', '.join(modules)}: name a Python that has them in MEMDIAG_TEST_TRAINERS_PYTHON")
    return python


@cache
def _is_cuda(python: str) -> bool:
    """Returns whether the torch of a Python is a build for CUDA."""
    return subprocess.run([python, "-c", _IS_CUDA], env=environment(), timeout=100, check=False).returncode == 0


def run_program(python: str, program: Path, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, on a simulated device if torch is a build for CUDA."""
    base = environment()
    if _is_cuda(python):
        base = phantom.environment_for(profiles.choose("cuda:h100-80g"), [python], base)
    done = subprocess.run(
        [forking.python_for(python), str(program), *words],
        capture_output=True,
        text=True,
        env=base,
        timeout=500,
        check=False,
    )
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
