"""Prints as JSON the values that a program reads back from a simulated NPU."""

import json
import resource

import torch
import torch_npu  # noqa: F401 - for torch.npu

seen = {}
given = torch.arange(1, 100_001, dtype=torch.float32)
there = given.npu()
seen["round trip"] = torch.equal(there.cpu(), given)
seen["view"] = torch.equal(there.view(100, 1000).t().cpu(), given.view(100, 1000).t())
seen["copy on the device"] = torch.equal(there.clone().cpu(), given)
seen["part"] = there[10:13].tolist()
seen["computed"] = float((there * 2).cpu().abs().sum())
address = there.data_ptr()
del there
again = torch.empty(100_000, device="npu")
seen["same block"] = again.data_ptr() == address
seen["freed bytes"] = float(again.cpu().abs().sum())
ones = torch.ones(5, device="npu", dtype=torch.bfloat16)
seen["fills"] = [
    ones.cpu().float().tolist(),
    torch.full((2,), 65536.0, device="npu").tolist(),
    torch.full((2,), -3, device="npu").tolist(),
]
seen["halves"] = (
    torch.full((1,), 0.1, device="npu", dtype=torch.half).item() == torch.tensor(0.1, dtype=torch.half).item()
)
ones.add_(1)
seen["changed in place"] = ones.cpu().float().tolist()
several = [torch.ones(2, device="npu"), torch.ones(3, device="npu")]
torch._foreach_mul_(several, 2)
seen["changed together"] = [tensor.tolist() for tensor in several]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
large = [torch.empty(1 << 30, device="npu") for _ in range(8)]
large[0].zero_()
large[1].copy_(large[2])
(large[3] + large[4]).sum().item()
seen["MiB for 32 GiB"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
try:
    torch.empty(60 << 30, dtype=torch.uint8, device="npu")
except RuntimeError as error:  # torch.OutOfMemoryError in newer versions
    seen["failure"] = str(error).splitlines()[0]
seen["kept on failure"] = torch.npu.memory_allocated() > 32 << 30
print(json.dumps(seen))
