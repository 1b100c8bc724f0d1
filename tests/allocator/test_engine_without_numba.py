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
from programs import cuda_program, npu_program

from memdiag.allocator.replay import replay
from memdiag.allocator.result import Replay

SEEDS = (3, 4, 5)
_PROGRAM = """
import sys, warnings
warnings.simplefilter("error")
if sys.argv[1] == "missing":
    sys.modules["numba"] = None  # importing it fails
sys.path[:0] = sys.argv[2:]
from test_engine_without_numba import digests
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
        chance = random.Random(seed)  # noqa: S311 - a program, no secret
        program = cuda_program(chance, 300)
        found.append(digest(replay(program.workload(), "caching", conf=program.conf, capacity=program.total, log=True)))
        program = npu_program(chance, 300)
        found.append(digest(replay(program.workload(), "npu", conf=program.conf, capacity=program.total, log=True)))
    return " ".join(found)


@pytest.mark.parametrize("how", ["missing", "disabled"])
def test_the_same_without_numba(how: str) -> None:
    here = Path(__file__).parent
    command = [sys.executable, "-c", _PROGRAM, how, str(here), str(here.parent)]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"} if how == "disabled" else None
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stderr == ""
    assert done.stdout.strip() == digests()
