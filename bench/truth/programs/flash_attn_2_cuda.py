"""Stands for the compiled part of flash-attn 2.5.0: allocates what that allocates, and computes nothing.

The registry has flash-attn without it, and compiling it takes a CUDA toolkit and hours. Only the two functions that
nanotron calls (sequences of any length, without dropout or returned probabilities) are here; the sizes are those of
flash-attention v2.5.0, csrc/flash_attn/flash_api.cpp: mha_varlen_fwd and mha_varlen_bwd.
"""

from typing import Any

import torch


def _rounded(number: int, multiple: int) -> int:
    return (number + multiple - 1) // multiple * multiple


def varlen_fwd(q: Any, k: Any, v: Any, out: Any, lengths: Any, *rest: Any) -> tuple[Any, ...]:
    """Returns output, inputs, output before it is cut, logarithms of the sums, no probabilities, and random state."""
    _, _, _, longest, *_ = rest
    if q.shape[-1] % 8:
        raise NotImplementedError("heads of a size that flash-attn pads")
    out = torch.empty_like(q) if out is None else out
    sums = torch.empty(len(lengths) - 1, q.shape[1], longest, dtype=torch.float32, device=q.device)
    return out, q, k, v, out, sums, None, torch.empty(2, dtype=torch.int64, device=q.device)


def varlen_bwd(grad: Any, q: Any, k: Any, *rest: Any) -> tuple[Any, ...]:
    """Returns the gradients that it was given to fill, and the sums of products; frees an accumulator in fp32."""
    _, _, _, dq, dk, dv, lengths, _, _, longest, *_ = rest
    if k.shape[1] != q.shape[1] or grad.shape[-1] % 8:
        raise NotImplementedError("heads that share keys, or of a size that flash-attn pads")
    heads, size, batch = q.shape[1], _rounded(q.shape[2], 32), len(lengths) - 1
    sums = torch.empty(batch, heads, _rounded(longest, 128), dtype=torch.float32, device=q.device)
    torch.empty(q.shape[0] + 128 * batch, heads, size, dtype=torch.float32, device=q.device)
    return dq, dk, dv, sums
