"""Trains a small model in one of many ways, and writes its own account of its tensors and phases."""

from __future__ import annotations

import argparse
import contextlib
import random
import sys

import torch
from nets import MODELS, batch_for, optimizer_for
from torch.nn import functional
from truth import Truth

parser = argparse.ArgumentParser()
parser.add_argument("out")
parser.add_argument("--device", default="cpu")
parser.add_argument("--model", default="gpt")
parser.add_argument("--optimizer", default="adamw")
parser.add_argument("--checkpoint", default="")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--autocast", action="store_true")
parser.add_argument("--compile", default="", help="backend of torch.compile")
parser.add_argument("--eval", action="store_true")
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--plain", action="store_true", help="without hooks and marks of its own in the model")
options = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(3)
random.seed(3)
torch.backends.cudnn.enabled = False  # a simulated device has no cuDNN
if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
    torch.backends.cuda.enable_cudnn_sdp(False)
if options.device == "npu":
    import torch_npu  # noqa: F401


class Trainer:  # like a user's class that is not a module
    def __init__(self):
        self.truth = truth = Truth(options.device)
        inside = {} if options.plain else {"truth": truth}
        if options.checkpoint:
            inside["mode"] = options.checkpoint
        self.model = MODELS[options.model](**inside).to(options.device)
        self.named = dict(self.model.named_parameters())
        truth.moment("initialisation")
        self.optimizer = optimizer_for(options.optimizer, self.model.parameters())
        if not options.plain:
            truth.follow_activations(self.model)
        self.called = torch.compile(self.model, backend=options.compile) if options.compile else self.model
        self.losses = []

    def train(self):
        truth = self.truth
        for step in range(options.steps):
            for _ in range(options.accumulate):
                inputs, targets = batch_for(self.model, options.device)
                at = truth.moment("outside" if truth.step >= 0 else "initialisation")
                truth.see(at, inputs, "input")
                truth.step = step
                with torch.autocast(options.device, torch.bfloat16) if options.autocast else contextlib.nullcontext():
                    loss = functional.cross_entropy(self.called(inputs).float(), targets)
                loss.backward()
                at = truth.moment("outside")
                truth.see_model(at, self.named, gradients=True)
            self.losses.append(loss.detach())
            del loss
            self.optimizer.step()
            truth.step = step + 1
            at = truth.moment("outside")
            truth.see_model(at, self.named)
            truth.see_states(at, self.optimizer, self.named)
            self.optimizer.zero_grad()
            if options.eval:
                self.model.eval()
                with torch.no_grad():
                    self.called(inputs)
                self.model.train()
                truth.moment("outside")


trainer = Trainer()
trainer.train()
sys.stdout.write(repr([loss.item() for loss in trainer.losses]) + "\n")
more = {}
if options.compile:
    from torch._dynamo.utils import counters

    more["dynamo"] = {
        name: dict(values)
        for name, values in counters.items()
        if name in {"graph_break", "unique_graph_breaks", "stats"}
    }
    more["dynamo"] = {name: {str(k): v for k, v in values.items()} for name, values in more["dynamo"].items()}
more["sum"] = float(sum(p.detach().double().abs().sum() for p in trainer.model.parameters()))
more["random"] = [random.random(), float(torch.rand(1))]
trainer.truth.write(options.out, **more)
