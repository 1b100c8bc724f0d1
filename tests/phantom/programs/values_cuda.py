"""Asserts which values a program reads back from a simulated CUDA device."""

import ctypes
import json

import torch

ask = ctypes.CDLL(None).memdiag_phantom_facts
ask.restype = ctypes.c_char_p
written = torch.arange(1000)
there = written.cuda()
assert torch.equal(there.cpu(), written)
assert torch.equal(there[10:20].cpu(), written[10:20])
copied = torch.empty_like(there)
copied.copy_(there)
assert torch.equal(copied.cpu(), written)
there[5:7] = torch.tensor([1, 2]).cuda()
assert there.cpu()[4:8].tolist() == [4, 1, 2, 7]
large = torch.randn(1 << 22)
assert torch.equal(large.cuda().cpu(), large)

read = torch.tensor([1.0, 2.0, 3.0]).cuda()
assert (read + 1).cpu().tolist() == [0, 0, 0], "results of kernels read as zeros"
assert read.tolist() == [1, 2, 3], "what was only read is still known"

for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool):
    assert torch.ones(7, dtype=dtype, device="cuda").cpu().tolist() == [1] * 7
filled = torch.full((3,), 2.5, device="cuda")
assert filled.tolist() == [2.5] * 3
filled.mul_(2)
assert filled.tolist() == [0, 0, 0]

place = there.data_ptr()
del there
reused = torch.empty(1000, dtype=torch.long, device="cuda")
assert reused.data_ptr() == place, "the block that was freed last is used again"
assert not reused.cpu().any(), "nobody reads what another tensor left"
part = torch.empty(2000, device="cuda")
part[100:110] = torch.ones(10).cuda()
part.add_(1)
assert not part.cpu().any(), "a kernel may write all of the block that it is given"

# One kernel writes a list of tensors, and more of them than fit into the 4 KiB of arguments that older devices take.
targets = [torch.ones(3).cuda() for _ in range(600)]
sources = [one * 2 for one in targets]
torch._foreach_copy_(targets, sources)
assert not any(one.cpu().any() for one in targets), "results of kernels on lists"
torch._foreach_mul_(sources, torch.tensor(3.0).cuda())
assert read.tolist() == [1, 2, 3], "not in the lists"
torch._foreach_add([read, read], 1)
assert read.tolist() == [1, 2, 3], "only read"
norms = torch._foreach_norm([read] * 20)
assert read.tolist() == [1, 2, 3], "norms only read"
assert not any(norm.item() for norm in norms), "results of kernels with an address for each block of threads"
torch._foreach_norm([torch.empty(3, device="cuda")])
assert read.tolist() == [1, 2, 3], "not given to the kernel"
rows = torch.tensor([1, 2, 3]).cuda()
torch.arange(7.0).cuda()[rows.clamp(0, 6)]
torch.frexp(torch.empty(3, 4, device="cuda"))
assert rows.tolist() == [1, 2, 3], "given only to an earlier kernel, whose data is still on the stack"
torch._foreach_zero_([read])
assert read.tolist() == [0, 0, 0]

halves = torch.arange(8.0).cuda()
torch.nn.functional.glu(torch.empty(4, 2, 8, device="cuda"), 1).sigmoid_()
assert halves.tolist() == list(range(8)), "not given to the kernel"

still = torch.zeros(8, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    still.add_(1)
still.copy_(torch.arange(8.0))
assert still.tolist() == list(range(8))
graph.replay()
assert still.tolist() == [0] * 8, "a replay writes again"

scaler = torch.amp.GradScaler("cuda")
scaler.scale(torch.zeros((), device="cuda", requires_grad=True)).backward()
assert scaler.get_scale() == 65536

known = torch.tensor([0, 3, 0, 5]).cuda()
assert known.nonzero().shape == (2, 1), "values that the host wrote are counted"
assert json.loads(ask())["assumed_sizes"]["count"] == 0
assert (known + 1).nonzero().shape == (4, 1), "all elements, where the values are unknown"
unknown = known * 2
assert unknown[unknown > 3].shape == unknown.unique().shape == (4,)
assumed = json.loads(ask())["assumed_sizes"]
assert (assumed["fraction"], assumed["count"], len(assumed["places"])) == (1, 3, 2), assumed
assert "values_cuda.py:" in assumed["last"], assumed
sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.ones(3), (2, 3)).cuda()
assert sparse.coalesce().values().shape == (3,), "no two at the same place"
print("all as documented")
