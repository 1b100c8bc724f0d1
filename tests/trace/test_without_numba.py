"""Without numba, the same code runs as plain Python, with equal results and without warnings."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest

from memdiag.sources import load

_PROGRAM = """
import sys, warnings
warnings.simplefilter("error")
sys.modules["numba"] = None  # importing it fails
from memdiag.sources import load
from tests.trace.test_without_numba import digest
print(digest(load(sys.argv[1])))
"""


def digest(trace):
    """Returns a hash of every column of every table."""
    text = hashlib.sha256()
    for device in trace.devices:
        for table in (
            device.events,
            device.usage,
            device.references,
            device.tensors,
            device.regions,
            device.groups,
            device.segments,
        ):
            for column in table:
                text.update(table[column].tobytes())
    return text.hexdigest()


@pytest.mark.parametrize(
    "name", ["cuda-2.13.0-expandable", "cuda-2.13.0-ring", "cuda-2.11.0-oom", "npu-2.13.0-workspace"]
)
def test_traces_are_the_same_without_numba(root, goldens, name):
    path = goldens / name / "snapshot.pickle"
    command = [sys.executable, "-c", _PROGRAM, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert done.stderr == ""
    assert done.stdout.strip() == digest(load(path))
