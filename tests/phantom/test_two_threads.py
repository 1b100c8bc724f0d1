"""Two threads that call models in turns have their own phases, modules and workspaces."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memdiag.sources import load
from memdiag.trace.recorded import module_at
from memdiag.trace.schema import CATEGORIES, PHASES
from tests.phantom.cuda_stand_in import PYTHON, needs_torch

PROGRAM = Path(__file__).with_name("programs") / "two_threads.py"
WORKSPACE = 32 << 20

pytestmark = needs_torch


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("threads")
    options = ["record", "-q", "--phantom", "cuda:h100-80g", "-o", "run"]
    command = [sys.executable, "-m", "memdiag", *options, "--", PYTHON, str(PROGRAM)]
    root = str(Path(__file__).parents[2])
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": root})
    return load(folder / "run" / "rank0.pkl")


def tensors(trace, elements):
    """Returns category, phase of allocation and phase of free of all tensors with a number of elements."""
    found = trace.devices[0].tensors
    rows = [row for row in range(len(found)) if found.requested_bytes[row] == 4 * elements]
    columns = (found.category, CATEGORIES), (found.phase_alloc, PHASES), (found.phase_free, PHASES)
    return [tuple(words[column[row]] for column, words in columns) for row in rows]


def test_what_one_thread_allocates_between_calls_of_another_thread_keeps_its_own_phase(trace):
    assert set(tensors(trace, 64 * 3000)) == {("temporary", "forward", "forward")}  # layers of the wide model
    assert tensors(trace, 64 * 700).count(("activation", "forward", "backward")) == 3  # of the deep one
    # the answer of the wide model, and what the program makes of it
    assert tensors(trace, 64 * 1010).count(("temporary", "outside", "outside")) == 3
    assert {kind for kind, *_ in tensors(trace, 64 * 1000)} == {"input"}
    assert {kind for kind, *_ in tensors(trace, 64 * 500)} == {"input"}
    kinds = [kind for kind, *_ in tensors(trace, 700 * 900)]
    assert kinds == ["parameter", "gradient", "optimizer_state", "gradient", "gradient"]


def test_a_tensor_has_the_name_of_the_module_that_its_own_thread_runs(trace):
    device = trace.devices[0]
    running = module_at(trace.recorded, device)[device.tensors.alloc_at]
    names = {4 * 64 * 3000: {"layers.0", "Wide"}, 4 * 64 * 900: {"layers.1", "Deep"}}
    for size, wanted in names.items():
        rows = (device.tensors.requested_bytes == size) & (device.tensors.phase_alloc == PHASES.index("forward"))
        assert {trace.recorded.names[number] for number in running[rows]} == wanted


def test_each_thread_has_its_own_workspace_and_no_note(trace):
    phases = ("forward", "forward", "backward")
    assert tensors(trace, WORKSPACE // 4) == [("workspace", phase, "unknown") for phase in phases]
    assert not (trace.devices[0].tensors.label >= 0).any()
    assert set(trace.recorded.marks["thread"].tolist()) == {0, 1, 2}
