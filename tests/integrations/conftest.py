"""Fixtures that run training programs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frameworks import run_program, trainers_python
from tests.pythons import NO_CUDA, cuda_python

PROGRAMS = Path(__file__).parent / "programs"
Runner = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def trainers() -> Runner:
    """Runs programs in the Python with the frameworks: ``trainers("transformers", "train.py", …, status=0)``."""

    def run(package: str, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        return run_program(trainers_python(package), PROGRAMS / words[0], *words[1:], status=status)

    return run


@pytest.fixture
def loop() -> Runner:
    """Runs programs that need torch only, in the Python of the tests."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch in the Python that runs the tests")

    def run(*words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        return run_program(sys.executable, PROGRAMS / words[0], *words[1:], status=status)

    return run


@pytest.fixture
def cuda_loop() -> Runner:
    """Runs programs that need torch only, on a simulated CUDA device."""
    python = cuda_python()
    if not python:
        pytest.skip(NO_CUDA)

    def run(*words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        return run_program(python, PROGRAMS / words[0], *words[1:], status=status)

    return run
