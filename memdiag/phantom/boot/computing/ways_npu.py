"""CPU implementations of torch_npu's own operators: attention, type conversion, dropout with bit masks."""

from __future__ import annotations

from typing import Any

from . import original
from .ways import Attention, way

SPACES = {"cuda": (), "npu": ("npu",)}  # operators in addition to PyTorch's own
# torch_npu's autograd kernels of these call its own functions without dispatching; integers have no gradients.
BEFORE_AUTOGRAD = {"cuda": (), "npu": ("one_hot",)}

# By sparse_mode: a mask as given, causal from the first position, causal up to the last.
_GIVEN, _CAUSAL, _CAUSAL_TO_THE_LAST = (0, 1), 2, 3
_ORDERS = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3)}  # positions of batch, heads, sequence and width


def _in_order(tensor: Any, layout: str) -> Any:
    return tensor.permute(_ORDERS[layout])  # both orders are their own inverse


def _attention(
    query: Any,
    key: Any,
    value: Any,
    layout: str,
    seeds: Any,
    pse: Any = None,
    padding_mask: Any = None,
    atten_mask: Any = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    sparse_mode: int = 0,
    prefix: Any = None,
    actual_seq_qlen: Any = None,
    sink: Any = None,
    read: Any = None,
    **_: Any,
) -> Attention:
    if any(other is not None for other in (pse, padding_mask, prefix, actual_seq_qlen, sink)) or layout not in _ORDERS:
        raise NotImplementedError("attention of this form")
    query, key, value = (_in_order(tensor, layout) for tensor in (query, key, value))
    is_square = query.shape[-2] == key.shape[-2]
    is_causal = sparse_mode == _CAUSAL or (sparse_mode == _CAUSAL_TO_THE_LAST and is_square)
    if not is_causal and sparse_mode not in _GIVEN:
        raise NotImplementedError(f"attention with sparse_mode {sparse_mode}")
    bias = None if is_causal or atten_mask is None else read(atten_mask).bool().logical_not()
    return Attention(query, key, value, bias, is_causal=is_causal, scale=scale, dropout=1 - keep_prob, seeds=seeds)


_NAMES = (
    "pse",
    "padding_mask",
    "atten_mask",
    "scale",
    "keep_prob",
    "",
    "",
    "",
    "prefix",
    "actual_seq_qlen",
    "",
    "sparse_mode",
)


@way("npu_fusion_attention_v3", unread=("atten_mask",), sees_answers=True, reads=True)
def _fusion(query: Any, key: Any, value: Any, _: int, layout: str, *rest: Any, answers: Any, **named: Any) -> Any:
    given = {name: one for name, one in zip(_NAMES, rest) if name} | named
    output = _in_order(_attention(query, key, value, layout, answers[4:6], **given).output(), layout)
    return output, None, None, None, None, None


@way(
    "npu_fusion_attention_grad_v3",
    unread=("atten_mask", "softmax_max", "softmax_sum", "softmax_in", "attention_in"),
    reads=True,
)
def _fusion_backward(
    query: Any,
    key: Any,
    value: Any,
    grad: Any,
    _: int,
    layout: str,
    *,
    scale_value: float = 1.0,
    seed: Any = None,
    offset: Any = None,
    **named: Any,
) -> Any:
    made = _attention(query, key, value, layout, (seed, offset), scale=scale_value, **named)
    return (*(_in_order(one, layout) for one in made.gradients(_in_order(grad, layout))[:3]), None, None)


@way("_npu_dtype_cast")
def _cast(of: Any, dtype: Any) -> Any:
    return of.to(dtype)


@way("native_dropout", sees_answers=True)
def _dropout(of: Any, share: float, is_training: Any, *, answers: Any) -> Any:
    torch = original.torch()
    output, mask = torch.ops.aten.native_dropout(of, share, is_training)
    room = answers[1].numel()
    if room == mask.numel():
        return output, mask
    bits = torch.zeros(room * 8, dtype=torch.int32, device="cpu")
    bits[: mask.numel()] = mask.reshape(-1)
    return output, (bits.view(-1, 8) << torch.arange(8, dtype=torch.int32, device="cpu")).sum(-1).to(torch.uint8)


@way("native_dropout_backward")
def _dropout_backward(grad: Any, mask: Any, scale: float) -> Any:
    torch = original.torch()
    if mask.numel() != grad.numel():
        bits = mask.reshape(-1, 1).to(torch.int32) >> torch.arange(8, dtype=torch.int32, device="cpu") & 1
        mask = bits.view(-1)[: grad.numel()].view(grad.shape).bool()
    return torch.ops.aten.native_dropout_backward(grad, mask, scale)
