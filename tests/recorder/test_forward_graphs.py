"""The recorder knows whether autograd records the forward passes of a program."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from memdiag.recorder.forward_graphs import ForwardGraphs

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


@pytest.mark.parametrize(
    ("passes", "is_evaluation"),
    [
        ("train backward eval", True),
        ("train backward eval eval", True),
        ("eval", False),  # inference only
        ("train backward eval backward eval", False),  # frozen statistics: it trains in evaluation mode
        ("train backward eval train", False),
        ("train backward off", False),  # under no_grad
    ],
)
def test_passes_in_evaluation_mode_that_never_had_a_backward(passes, is_evaluation):
    grad = True
    graphs = ForwardGraphs(SimpleNamespace(is_grad_enabled=lambda: grad))
    weight = SimpleNamespace(requires_grad=True)
    for word in passes.split():
        grad = word != "off"
        if word == "backward":
            graphs.backward()
        else:
            graphs.enter(SimpleNamespace(training=word == "train", parameters=lambda: [weight]))
    assert graphs.is_evaluation == is_evaluation
