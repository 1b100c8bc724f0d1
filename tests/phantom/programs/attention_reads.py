"""Prints the labels that attention made unknown, although it does not get them: earlier operators left addresses."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

labels = [torch.arange(1, count + 1).cuda() for count in (8, 160, 2560)]
lost = []
for backend, dtype in (
    (SDPBackend.EFFICIENT_ATTENTION, torch.float32),
    (SDPBackend.EFFICIENT_ATTENTION, torch.float16),
    (SDPBackend.FLASH_ATTENTION, torch.bfloat16),
):
    layer = torch.nn.Linear(64, 192).cuda().to(dtype)
    for batch in (1, 8):
        for _ in range(4):
            data = torch.randn(batch, 99, 64, device="cuda", dtype=dtype)
            (labels[0] == 3).any()
            query, key, value = layer(data).view(batch, 99, 3, 8, 8).permute(2, 0, 3, 1, 4)
            with sdpa_kernel(backend):
                result = torch.nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1)
            result.sum().backward()
            lost += [(backend.name, each) for each in labels if int(each.max()) != len(each)]
print(lost)
