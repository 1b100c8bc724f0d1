"""Draws from distributions on a simulated device; prints the allocator's events as JSON: checked.py cuda|npu."""

import hashlib
import json
import sys

import torch
from torch import distributions

device = sys.argv[1]
if device == "npu":
    import torch_npu

    backend = torch_npu.npu
else:
    backend = torch.cuda

backend.memory._record_memory_history(max_entries=100_000)
mean, std, row = (made.to(device) for made in (torch.zeros(200, 50), torch.ones(200, 50), torch.ones(50)))

# Each result is kept until the next one is there, so another order of allocations has other addresses.
kept = []
for one, other in ((mean, std), (mean, row), (0.0, std), (row, std)):
    kept = [torch.normal(one, other), *kept[:1]]
torch.normal(mean, std, out=torch.empty(0, device=device))
learned = std.clone().requires_grad_()
loss = (torch.normal(mean, learned) * learned).sum()
loss.backward()

normal = distributions.Normal(mean, std)
normal.log_prob(normal.rsample())
distributions.Independent(normal, 1).log_prob(normal.sample())
distributions.Categorical(logits=mean).log_prob(distributions.Categorical(probs=std / 50).sample())
distributions.Geometric(probs=std / 2).sample()
distributions.ContinuousBernoulli(probs=std / 2).log_prob(std / 2)
events = [
    (event["action"], event["addr"], event["size"], event["stream"])
    for trace in backend.memory._snapshot()["device_traces"]
    for event in trace
]
refused = []
valid, invalid = torch.zeros(4), torch.full((4,), -1.0)
for parameters in ((valid.to(device), invalid.to(device)), (valid, invalid)):
    try:
        distributions.Normal(*parameters)
    except ValueError as error:
        refused.append(str(error).partition(" (")[0])
    try:
        torch.normal(*parameters)
    except RuntimeError as error:
        refused.append(str(error).splitlines()[0])
print(
    json.dumps(
        {
            "events": hashlib.sha256(repr(events).encode()).hexdigest(),
            "num_events": len(events),
            "gradient": learned.grad is not None,
            "refused": refused,
        }
    )
)
