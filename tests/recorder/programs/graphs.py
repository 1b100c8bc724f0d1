"""Captures a training step as a CUDA graph and replays it."""

import sys

import torch
from truth import Truth

out = sys.argv[1]
truth = Truth("cuda")
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128)).cuda()
named = dict(model.named_parameters())
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
inputs = torch.randn(64, 128, device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    model(inputs).square().mean().backward()
    optimizer.step()


stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    for _ in range(2):
        step()
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
for _ in range(3):
    graph.replay()
truth.step = 3
at = truth.moment()
truth.see_model(at, named)
truth.see_states(at, optimizer, named)
truth.see_model(at, named, gradients=True)
truth.write(out)
