"""memdiag distinguishes workspaces of cuBLAS from other tensors of their sizes."""

from __future__ import annotations

import pytest

from memdiag.trace.schema import CATEGORIES
from memdiag.trace.workspaces import CUBLAS_WORKSPACE, HOPPER_WORKSPACE
from tests.trace.test_categories import OnHopper
from tests.trace.trainings import NO_FRAMES, born
from tests.training import Training, forward


def check(program):
    device = program.trace().devices[0]
    found = device.tensors.category[born(device)] == CATEGORIES.index("workspace")
    assert found.tolist() == [category == "workspace" for category, _, _ in program.truth]


@pytest.mark.parametrize("until", ["", "backward"])
def test_activations_of_the_size_of_an_older_gpus_workspace_are_none_on_hopper(until):
    program = OnHopper(layers=1, size=CUBLAS_WORKSPACE // 2)  # activations have twice this size
    program.initialise()
    for _ in range(3):
        program.step()
    if until:
        program.step(until=until)
    check(program)


@pytest.mark.parametrize("is_freed", [False, True])
def test_an_older_gpu_has_workspaces_of_the_default_size(is_freed):
    """A program may free its workspaces, for example for a CUDA graph."""
    program = Training()
    program.initialise()
    program.step()
    program.phase = "forward"
    program.alloc(HOPPER_WORKSPACE, forward(1), "unknown")
    kept = [program.alloc(CUBLAS_WORKSPACE, forward(0), "workspace")]
    program.phase = "backward"
    kept.append(program.alloc(CUBLAS_WORKSPACE, NO_FRAMES, "workspace"))
    program.step()
    for address in kept if is_freed else ():
        program.free(address)
    program.step()
    check(program)
