"""Prints as JSON the values that a program reads back from kernels that the simulated NPU does not compute."""

import ctypes
import json

import torch
import torch_npu  # noqa: F401 - for torch.npu

seen = {}
given = torch.arange(1.0, 1001.0).npu()
seen["known"] = [
    given[2:4].tolist(),
    torch.zeros(3, device="npu").tolist(),
    given.view(2, 500).t().contiguous()[1].tolist(),
]
ask = ctypes.CDLL(None).memdiag_phantom_facts
ask.restype = ctypes.c_char_p
seen["nothing was made up"] = json.loads(ask())["read_backs"]["count"] == 0
made = given + 1
seen["equals itself"] = torch.equal(made, made)
seen["floats"] = [made[:2].tolist(), made.bfloat16()[:2].tolist(), made.double()[:2].tolist()]
seen["integers"] = made.argmax().item()
seen["bools"] = (made > 5)[:2].tolist()
seen["finite"] = torch.isfinite(made).all().item()
seen["nan"] = torch.isnan(made).any().item()
seen["masked"] = made[made > 5].shape[0]
seen["found"] = (made > 5).nonzero().shape[0]
flags = torch.zeros(8, dtype=torch.int32, device="npu")
flags[3] = 7
flags[5].add_(1)
seen["flags"] = flags.tolist()
scaler = torch.amp.GradScaler("npu")
layer = torch.nn.Linear(8, 8).npu()
optimizer = torch.optim.AdamW(layer.parameters())
for _ in range(4):
    scaler.scale(layer(torch.randn(2, 8).npu()).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
seen["scale"] = scaler.get_scale()
seen["facts"] = json.loads(ask())
print(json.dumps(seen))
