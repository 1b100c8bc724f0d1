"""Trains two models in turn, each with its own optimizer, and a learning-rate scheduler.

An iteration is one step, and the second optimizer ends it; only in the first iteration, the first optimizer ends it,
because nobody can know yet that another one follows.
"""

import sys

import torch
from torch import nn
from torch.nn import functional
from truth import Truth

out, device = sys.argv[1:]
if device == "npu":
    import torch_npu  # noqa: F401
truth = Truth(device)


def net(*widths):
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).to(device)


generator, judge = net(64, 300, 200), net(200, 250, 1)
of_generator = torch.optim.Adam(generator.parameters())
of_judge = torch.optim.SGD(judge.parameters(), lr=0.01, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(of_judge, 1)
for iteration in range(3):
    for model, optimizer in ((judge, of_judge), (generator, of_generator)):
        noise = torch.randn(100, 64, device=device)
        at = truth.moment()
        truth.step = max(truth.step, 0)  # the first forward begins step 0
        verdict = judge(generator(noise))
        functional.binary_cross_entropy_with_logits(verdict, torch.ones_like(verdict)).backward()
        at = truth.moment("outside")
        truth.see_model(at, dict(model.named_parameters()), gradients=True)
        optimizer.step()
        truth.step += optimizer is (of_judge if iteration == 0 else of_generator)
        at = truth.moment("outside")
        truth.see(at, noise, "input")
        for every in (generator, judge):
            truth.see_model(at, dict(every.named_parameters()))
        truth.see_states(at, optimizer, dict(model.named_parameters()))
        generator.zero_grad()
        judge.zero_grad()
    scheduler.step()
truth.write(out)
