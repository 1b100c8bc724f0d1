"""Reads indices, masks and counters back on the CPU and on a simulated device, and trains in between; prints JSON.

indices.py cuda|npu
"""

import json
import sys

import torch
from torch import nn

device = sys.argv[1]
if device == "npu":
    import torch_npu  # noqa: F401 - for torch.npu


def values(where):
    """Returns values that a program may read, by name. Layers and an optimizer run before the program reads them."""
    torch.manual_seed(0)
    lengths = torch.tensor([4, 12, 7]).to(where)
    times = torch.linspace(0, 1, 5, device=where)
    mask = torch.arange(12, device=where)[None] < lengths[:, None]
    model = nn.Sequential(
        nn.Conv1d(3, 6, 3, padding=1), nn.BatchNorm1d(6), nn.GLU(1), nn.Dropout(0.1), nn.Flatten(), nn.Linear(36, 12)
    ).to(where)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    data = torch.randn(3, 3, 12).to(where)
    for _ in range(2):
        scores = model(data).masked_fill(~mask, -1e9).softmax(-1)
        kept = torch.zeros_like(scores)
        kept[mask] = scores[mask]
        (kept * mask.float()).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    loss = float(scores.sum())  # not computed
    factor = torch.linalg.cholesky_ex(model[-1].weight[:, :12].detach() @ data[0].new_ones(12, 12))
    selected = data[:, 0][mask]
    rows = torch.arange(3000.0, device=where)
    table = torch.empty(3000, 4, device=where)  # each column has 3,000 contiguous pieces; the last one stays unknown
    for column in range(3):
        table[:, column] = rows + column
    table[:, 1].index_copy_(0, rows.long(), scores.sum().expand(3000))  # not computed
    resumed = [torch.tensor(float(step)).to(where) for step in (3, 4)]  # optimizer steps of a checkpoint
    torch._foreach_add_(resumed, 1)
    return {
        "lengths": [int(lengths.min()), int(lengths.max()), lengths.sort(descending=True).indices.tolist()],
        "steps": int(model[1].num_batches_tracked),
        "increasing": bool((times[1:] > times[:-1]).all()),
        "starts": bool(mask[:, 0].all()),
        "counts": mask.sum(1).tolist(),
        "selected": [len(selected), len(mask.nonzero()), int(mask.float().sum())],
        "ends": (lengths.cumsum(0) - 1).tolist(),
        "columns": [table[:, 0].sum().item(), table[:, ::2].sum().item(), table[-2:, 2].tolist()],
        "step": round(float(times[2] - times[1]), 6),
        "fit for Cholesky": int(factor.info) == 0 or where == "cpu",
        "resumed": [float(step) for step in resumed],
        "known classes": bool((lengths.remainder(3) < 3).all()),
    }, loss


def with_other_functions():
    """Returns a sum, while the program replaces functions of PyTorch, as zero.Init of DeepSpeed does."""
    kept = torch.empty, torch.empty_strided
    torch.empty = lambda *size, **options: kept[0](*size, **options).bfloat16()
    torch.empty_strided = lambda *size, **options: kept[1](*size, **options).bfloat16()
    try:
        return float((torch.arange(500.0, device=device)[::2] + 1).sum())
    finally:
        torch.empty, torch.empty_strided = kept


with torch.autocast(device, enabled=False):
    on_device, loss = values(device)
    print(json.dumps({"cpu": values("cpu")[0], "device": on_device, "loss": loss, "replaced": with_other_functions()}))
