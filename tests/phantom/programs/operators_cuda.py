"""Runs operators that select kernels by the code in the library: sorts, scans and selections (CUB), and an embedding.

Prints "ok" if all run. Prints "no kernels" if torch contains no code for the device, according to PyTorch's own list.
"""

import torch

major, minor = torch.cuda.get_device_capability()
architectures = [int(name.removeprefix("sm_").rstrip("af")) for name in torch.cuda.get_arch_list()]
runs = any(each // 10 == major and each % 10 <= minor for each in architectures)

try:
    x = torch.randn(100_000, device="cuda")
    x.cumsum(0)
    x.sort()
    x.topk(5)
    x.nonzero()
    torch.unique(x)
    torch.unique_consecutive(x)
    torch.isin(x, x[:50_000])
    assert torch.unique(x.view(1000, 100), dim=1).shape == (1000, 100)
    assert torch.unique_consecutive(x.view(1000, 100), dim=0).shape == (1000, 100)
    torch.randperm(70_000, device="cuda")
    table = torch.nn.Embedding(1000, 16, device="cuda")
    table(torch.arange(900, device="cuda")).sum().backward()
    torch.cuda.synchronize()
except RuntimeError as error:
    if runs or "no kernel image is available for execution on the device" not in str(error):
        raise
    print("no kernels")
else:
    assert runs
    print("ok")
