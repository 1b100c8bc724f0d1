"""The recorder knows whether autograd records the forward passes of a program."""

from __future__ import annotations

import pytest

PROGRAM = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Linear(300, 300)).requires_grad_({trains})
for grad in {grads}:
    with torch.set_grad_enabled(grad):
        model(torch.ones(8, 300))
"""


@pytest.mark.parametrize(
    ("grads", "trains", "num_graphs"),
    [([True, True], True, 2), ([True, False], True, 0), ([False], True, 0), ([True], False, 0)],
)
def test_graphs_of_all_forward_passes_are_counted(cpu, grads, trains, num_graphs):
    run = cpu("-c", PROGRAM.format(grads=grads, trains=trains))
    assert run.trace.recorded.ended.num_graphs == num_graphs
