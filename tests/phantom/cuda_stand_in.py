"""Helpers for tests of the simulated CUDA device: a Python with a CUDA build of torch, and a function to run it."""

import os
import subprocess
from functools import cache

import pytest

from memdiag.phantom import boot
from memdiag.phantom.cuda import standin
from memdiag.phantom.installed import installed_for
from memdiag.phantom.launch import same_addresses_from_now_on
from memdiag.phantom.profiles import choose
from tests.pythons import NO_CUDA, cuda_python

PYTHON = cuda_python()
needs_torch = pytest.mark.skipif(not PYTHON, reason=NO_CUDA)


@cache
def libraries():
    return standin.stand_in(installed_for([PYTHON], os.environ))


def run(arguments, cwd, device="cuda:h100-80g", rank=None, world=None, **more):
    """Runs that Python with these arguments on a simulated device; returns the completed process."""
    base = {key: value for key, value in os.environ.items() if "ALLOC_CONF" not in key}
    environment = (
        boot.environment(standin.environment(choose(device), libraries(), base), rank, world)
        | standin.planner(installed_for([PYTHON], os.environ), base)
        | {"PYTHONHASHSEED": "0"}
        | more
    )
    return subprocess.run(
        [PYTHON, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
        preexec_fn=same_addresses_from_now_on,
    )
