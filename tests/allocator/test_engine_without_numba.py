"""Without numba, the engine runs as plain Python, with the same results and no warnings."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from memdiag.allocator.replay import replay
from memdiag.allocator.result import Replay
from tests.allocator.programs import cuda_program, npu_program

ROOT = Path(__file__).parents[2]
SEEDS = (3, 4, 5)
_PROGRAM = """
import sys, warnings
warnings.simplefilter("error")
if sys.argv[1] == "missing":
    sys.modules["numba"] = None  # importing it fails
from tests.allocator.test_engine_without_numba import digests
print(digests())
"""


def digest(result: Replay) -> str:
    text = hashlib.sha256()
    for field in fields(result):
        value = getattr(result, field.name)
        for column in value.values() if isinstance(value, dict) else [value]:
            if isinstance(column, np.ndarray):
                text.update(np.ascontiguousarray(column).tobytes())
    return text.hexdigest()


def digests() -> str:
    found = []
    for seed in SEEDS:
        chance = random.Random(seed)  # noqa: S311 - a program, not a secret
        program = cuda_program(chance, 300)
        found.append(digest(replay(program.workload(), "caching", conf=program.conf, capacity=program.total, log=True)))
        program = npu_program(chance, 300)
        found.append(digest(replay(program.workload(), "npu", conf=program.conf, capacity=program.total, log=True)))
    return " ".join(found)


@pytest.mark.parametrize("how", ["missing", "disabled"])
def test_the_same_without_numba(how: str) -> None:
    command = [sys.executable, "-c", _PROGRAM, how]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"} if how == "disabled" else None
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert done.stderr == ""
    assert done.stdout.strip() == digests()
