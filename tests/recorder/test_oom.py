"""A training that runs out of memory leaves a trace of the failure with its phase, step and live tensors."""

from __future__ import annotations

import numpy as np
import pytest

from memdiag.trace import schema


def ooms_in(device):
    """Returns the rows of the out-of-memory events, and the phase and step of each."""
    rows = np.flatnonzero(device.events.action == schema.OOM)
    return rows, [(schema.PHASES[device.events.phase[row]], int(device.events.step[row])) for row in rows]


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_the_trace_has_the_failed_allocation_and_the_live_tensors(accelerator, compare, where):
    run = accelerator("oom.py", "{out}", accelerator.device, where, status=1)
    assert "OutOfMemoryError" in run.done.stderr
    assert "memdiag:" not in run.done.stderr
    status = run.status()
    assert status["reason"] == "oom"
    (oom,) = status["ooms"]
    assert (oom["backend"], oom["step"]) == (accelerator.device, 2)
    assert 0 <= oom["requested_bytes"] - run.truth["total"] <= 4 << 20  # rounded up
    found = compare(run)
    rows, phases = ooms_in(found.device)
    assert phases == [(where, 2)]
    assert found.wrong_tensors() == []
    live = found.device.live(int(rows[0]))
    names = {found.name(row) for row in live}
    assert {"layers.0.mlp.0.weight", "exp_avg of layers.0.mlp.0.weight"} <= names
    bytes_of = found.device.tensors.requested_bytes[live]
    assert bytes_of[found.device.tensors.category[live] > 0].sum() >= 0.99 * bytes_of.sum()


def test_a_caught_failure_is_recorded_and_the_program_continues(accelerator, compare):
    run = accelerator("oom.py", "{out}", accelerator.device, "caught")
    assert run.status()["reason"] == "exit"
    assert len(run.status()["ooms"]) == 1
    found = compare(run)
    assert ooms_in(found.device)[1] == [("backward", 2)]
    assert found.wrong_tensors() == []
    moment = found.device.tensors.alloc_at[found.places[-1]]
    assert schema.PHASES[found.device.events.phase[moment]] == "outside"


@pytest.mark.parametrize(
    ("then", "status", "reason"), [("kept = torch.ones(5, device=device)", 0, "exit"), ("exit(1)", 1, "oom")]
)
def test_without_a_training_a_program_that_goes_on_is_recorded_to_its_end(accelerator, then, status, reason):
    """One that allocates nothing more keeps the file of the failure."""
    device = accelerator.device
    program = "import torch\n" + ("import torch_npu\n" if device == "npu" else "")
    program += f"device = {device!r}\ntry:\n    torch.empty(1 << 45, dtype=torch.uint8, device=device)\n"
    program += f"except RuntimeError:\n    pass\n{then}\n"
    run = accelerator("-c", program, status=status)
    assert run.status()["reason"] == reason
    assert len(run.status()["ooms"]) == 1
    assert run.device.events.action.tolist().count(schema.ALLOC) == (1 if reason == "exit" else 0)


STEP = """
import torch
{imports}
device = torch.device({device!r})
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048, bias=False) for _ in range(4)]).to(device)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(8, 2048, device=device)).sum().backward()
free, _ = torch.{device}.mem_get_info()
ballast = torch.empty(free - (64 << 20), dtype=torch.uint8, device=device)
try:
    optimizer.step()
except torch.OutOfMemoryError:
    pass
del model, optimizer, ballast
torch.ones(5, device=device)
"""


def test_state_of_an_optimizer_whose_first_step_fails_is_known_although_it_is_freed(accelerator, compare):
    """As if a program tries a smaller batch with a new model."""
    device = accelerator.device
    program = STEP.format(device=device, imports="import torch_npu" if device == "npu" else "")
    found = compare(accelerator("-c", program))
    (oom,), phases = ooms_in(found.device)
    assert phases == [("optimizer", 0)]
    states = {found.name(row) for row in found.device.live(oom) if found.category(row) == "optimizer_state"}
    assert {"exp_avg of 0.weight", "exp_avg_sq of 0.weight", "exp_avg of 1.weight"} <= states


GRAPH = """
import torch
{imports}
optimizer = {optimizer}
with torch.set_grad_enabled({grad}):
    torch.empty(1 << 45, dtype=torch.uint8, device={device!r})
"""


@pytest.mark.parametrize(
    ("grad", "optimizer", "is_needless"),
    [
        (True, "None", True),
        (False, "None", False),
        (True, "torch.optim.SGD([torch.nn.Parameter(torch.ones(2))])", False),
    ],
)
def test_a_graph_that_autograd_records_without_an_optimizer_is_noted(accelerator, grad, optimizer, is_needless):
    device = accelerator.device
    imports = "import torch_npu" if device == "npu" else ""
    program = GRAPH.format(imports=imports, optimizer=optimizer, grad=grad, device=device)
    run = accelerator("-c", program, status=1)
    assert run.trace.recorded.ended.has_needless_graph == is_needless
