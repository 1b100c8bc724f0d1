"""Routes tokens to experts, reads their counts in the ways of public programs, and prints JSON: experts.py cuda|npu."""

import json
import sys

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

device = sys.argv[1]
if device == "npu":
    import torch_npu  # noqa: F401 - for torch.npu

TOKENS, EXPERTS, EACH, WIDTH = 96, 8, 2, 64

hidden = torch.randn(TOKENS, WIDTH, device=device)
gate = torch.randn(EXPERTS, WIDTH, device=device)
scores = (hidden @ gate.t()).softmax(-1)
weights, chosen = torch.topk(scores, EACH, dim=-1)
flat = chosen.flatten()
mask = torch.zeros(TOKENS, EXPERTS, dtype=torch.bool, device=device).scatter(1, chosen, True)
order = torch.argsort(flat, stable=True)
rows = [hidden[torch.where(chosen == expert)[0]] for expert in range(EXPERTS)]
counts = {
    "bincount": torch.bincount(flat, minlength=EXPERTS).tolist(),
    "one_hot": F.one_hot(chosen, EXPERTS).sum((0, 1)).tolist(),
    "map": mask.sum(0).tolist(),
    "where": [len(each) for each in rows],
    "nonzero": [len((chosen == expert).nonzero()) for expert in range(EXPERTS)],
    "index": [len(hidden[mask[:, expert]]) for expert in range(EXPERTS)],
    "index of unknown values": [len(weights[chosen == expert]) for expert in range(EXPERTS)],
    "masked_select": [len(scores[:, expert].masked_select(mask[:, expert])) for expert in range(EXPERTS)],
}
if device == "cuda":
    counts["histc"] = torch.histc(flat, bins=EXPERTS, min=0, max=EXPERTS - 1).tolist()
    counts["histc, float"] = torch.histc(flat.float(), bins=EXPERTS, min=0, max=EXPERTS - 1).int().tolist()
    bounds = torch.searchsorted(flat[order], torch.arange(EXPERTS + 1, device=device))
    counts["searchsorted"] = bounds.diff().tolist()
allocator = torch.npu if device == "npu" else torch.cuda
free = allocator.memory_allocated()
outputs = [each + 1 for each in rows]
print(
    json.dumps(
        {
            "counts": counts,
            "chosen": chosen.tolist(),
            "halves": [torch.bincount(half.flatten(), minlength=EXPERTS).tolist() for half in chosen.chunk(2)],
            "bytes": allocator.memory_allocated() - free,
            "vocabulary": torch.topk(torch.randn(4, 32000, device=device), 2)[1].tolist(),
            "facts": sys.modules["memdiag_phantom_computing"].expert_facts(),
        }
    )
)
