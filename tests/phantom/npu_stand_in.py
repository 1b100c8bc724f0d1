"""Helpers for tests of the simulated NPU: a Python with torch_npu, and a function to run it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from memdiag.phantom import launch
from memdiag.phantom.profiles import choose
from tests.pythons import NO_NPU, npu_command

PYTHON = npu_command()
PROGRAMS = Path(__file__).with_name("programs")

needs_npu = pytest.mark.skipif(not PYTHON, reason=NO_NPU)


def on_phantom(device, *words, cwd=None, **more):
    """Runs that Python with these arguments on a simulated device; returns the completed process."""
    command = [PYTHON, *map(str, words)]
    environment = launch.environment_for(choose(device), command, {**os.environ, **more})
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=cwd)


def said(done):
    """Returns the JSON objects that a program printed, and asserts that it exited with status 0.

    Two processes may print on one line, because ``print`` writes the text and the line end separately.
    """
    assert done.returncode == 0, done.stderr[-3000:]
    found = []
    for line in done.stdout.splitlines():
        rest = line
        while rest.startswith("{"):
            value, end = json.JSONDecoder().raw_decode(rest)
            found.append(value)
            rest = rest[end:]
    return found
