"""How the CPU does what only the device has an operator for: attention, layers of cuDNN, norms in one kernel.

A way takes what the operator takes and returns what it returns, with None for what nobody reads but the operator's own backward pass.
``unread`` names arguments of which it needs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Optional

_MOST_SCORES = 1 << 22  # elements: attention has one for each pair of places

WAYS: dict[str, Any] = {}


def _way(*names: str, unread: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    def keep(function: Any) -> Any:
        function.unread = unread
        WAYS.update(dict.fromkeys(names, function))
        return function

    return keep


def _torch() -> Any:
    return sys.modules["torch"]


class _Attention:
    """Attention as it is defined, in single precision.

    Args:
        query, key, value, bias: As PyTorch's operators take them (batch, heads, places, width); fewer heads of keys are repeated.
        is_causal: Whether each place sees only those before it.
        scale: Of the scores; None: by the width.
        dropout: Share of the scores that are dropped, by a generator that ``seed`` and ``offset`` seed.
    """

    def __init__(
        self, query: Any, key: Any, value: Any, bias: Any, is_causal: bool, scale: Any, dropout: float, seed: Any = None, offset: Any = None
    ) -> None:  # fmt: skip
        torch = _torch()
        if query.numel() // max(query.shape[-1], 1) * key.shape[-2] > _MOST_SCORES:
            raise ValueError("too many scores")
        self.groups = query.shape[1] // max(key.shape[1], 1)
        self.query, self.key, self.value = query.float(), self._spread(key), self._spread(value)
        self.scale = query.shape[-1] ** -0.5 if scale is None else scale
        scores = self.query @ self.key.transpose(-2, -1) * self.scale
        if bias is not None:
            scores = scores.masked_fill(~bias, float("-inf")) if bias.dtype == torch.bool else scores + bias.float()
        if is_causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool, device="cpu").tril().logical_not(), float("-inf"))
        self.sums = scores.logsumexp(-1)
        self.weights = scores.softmax(-1).nan_to_num(0.0)
        self.kept = None
        if dropout > 0:
            generator = torch.Generator(device="cpu").manual_seed(_mixed(seed, offset))
            chance = torch.empty(self.weights.shape, dtype=torch.float32, device="cpu").uniform_(generator=generator)
            self.kept = (chance >= dropout).float() / (1 - dropout)

    def _spread(self, tensor: Any) -> Any:
        return tensor.float().repeat_interleave(self.groups, 1) if self.groups > 1 else tensor.float()

    def _gather(self, gradient: Any) -> Any:
        return gradient.unflatten(1, (-1, self.groups)).sum(2) if self.groups > 1 else gradient

    def output(self) -> Any:
        weights = self.weights if self.kept is None else self.weights * self.kept
        return weights @ self.value

    def gradients(self, of_output: Any) -> tuple[Any, Any, Any, Any]:
        """Returns those of the query, the key, the value and the bias."""
        of_output = of_output.float()
        weights = self.weights if self.kept is None else self.weights * self.kept
        of_weights = of_output @ self.value.transpose(-2, -1)
        if self.kept is not None:
            of_weights = of_weights * self.kept
        of_scores = self.weights * (of_weights - (of_weights * self.weights).sum(-1, keepdim=True))
        of_query = of_scores @ self.key * self.scale
        of_key = of_scores.transpose(-2, -1) @ self.query * self.scale
        return of_query, self._gather(of_key), self._gather(weights.transpose(-2, -1) @ of_output), of_scores


def _mixed(seed: Any, offset: Any) -> int:
    numbers = [number for tensor in (seed, offset) if tensor is not None for number in tensor.reshape(-1).tolist()]
    mixed = 0
    for number in numbers:
        mixed = (mixed * 0x9E3779B97F4A7C15 + number + 1) & 0x7FFF_FFFF_FFFF_FFFF
    return mixed


def _fit(gradient: Any, like: Any) -> Any:
    """Returns the gradient of what was made larger, as a bias of one for all heads is."""
    return None if like is None else gradient.sum_to_size(like.shape)


def _no_dropout(dropout: float) -> None:
    if dropout > 0:
        raise NotImplementedError("attention with dropout")  # which places are dropped is told only to the device


@_way("_scaled_dot_product_flash_attention")
def _flash(query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, _: bool = False, *, scale: Any = None) -> Any:
    _no_dropout(dropout_p)
    made = _Attention(query, key, value, None, is_causal, scale, 0.0)
    return made.output(), made.sums, None, None, None, None, None, None, None


@_way("_scaled_dot_product_efficient_attention")
def _efficient(
    query: Any, key: Any, value: Any, bias: Any, with_sums: bool, dropout_p: float = 0.0, is_causal: bool = False, *, scale: Any = None
) -> Any:  # fmt: skip
    _no_dropout(dropout_p)
    return _Attention(query, key, value, bias, is_causal, scale, 0.0).output(), None, None, None


@_way("_scaled_dot_product_cudnn_attention")
def _cudnn(
    query: Any, key: Any, value: Any, bias: Any, with_sums: bool, dropout_p: float = 0.0, is_causal: bool = False, _: bool = False, *,
    scale: Any = None,
) -> Any:  # fmt: skip
    _no_dropout(dropout_p)
    return _Attention(query, key, value, bias, is_causal, scale, 0.0).output(), None, None, None, None, None, None, None, None


_BEHIND = ("out", "logsumexp", "cum_seq_q", "cum_seq_k", "philox_seed", "philox_offset")


@_way("_scaled_dot_product_flash_attention_backward", unread=_BEHIND)
def _flash_backward(
    grad: Any, query: Any, key: Any, value: Any, out: Any, sums: Any, cum_q: Any, cum_k: Any, max_q: Any, max_k: Any, dropout_p: float,
    is_causal: bool, seed: Any, offset: Any, *, scale: Any = None,
) -> Any:  # fmt: skip
    _no_dropout(dropout_p)
    return _Attention(query, key, value, None, is_causal, scale, 0.0).gradients(grad)[:3]


@_way("_scaled_dot_product_efficient_attention_backward", unread=_BEHIND)
def _efficient_backward(
    grad: Any, query: Any, key: Any, value: Any, bias: Any, out: Any, sums: Any, seed: Any, offset: Any, dropout_p: float, wanted: Any,
    is_causal: bool = False, *, scale: Any = None,
) -> Any:  # fmt: skip
    _no_dropout(dropout_p)
    found = _Attention(query, key, value, bias, is_causal, scale, 0.0).gradients(grad)
    return (*found[:3], _fit(found[3], bias))


@_way("_scaled_dot_product_cudnn_attention_backward", unread=_BEHIND)
def _cudnn_backward(
    grad: Any, query: Any, key: Any, value: Any, out: Any, sums: Any, seed: Any, offset: Any, bias: Any, cum_q: Any, cum_k: Any, max_q: Any,
    max_k: Any, dropout_p: float, is_causal: bool, *, scale: Any = None,
) -> Any:  # fmt: skip
    _no_dropout(dropout_p)
    return _Attention(query, key, value, bias, is_causal, scale, 0.0).gradients(grad)[:3]


@_way("cudnn_batch_norm")
def _batch_norm(of: Any, weight: Any, bias: Any, mean: Any, variance: Any, is_training: bool, momentum: float, epsilon: float) -> Any:
    return (*_torch().ops.aten.native_batch_norm(of, weight, bias, mean, variance, is_training, momentum, epsilon), None)


@_way("cudnn_batch_norm_backward", unread=("reserveSpace",))
def _batch_norm_backward(
    of: Any, grad: Any, weight: Any, mean: Any, variance: Any, saved_mean: Any, saved_variance: Any, epsilon: float, reserve: Any
) -> Any:  # fmt: skip
    backward = _torch().ops.aten.native_batch_norm_backward
    return backward(grad, of, weight, mean, variance, saved_mean, saved_variance, True, epsilon, [True] * 3)


@_way("_fused_rms_norm")
def _rms_norm(of: Any, sizes: Any, weight: Any = None, epsilon: Optional[float] = None) -> Any:  # noqa: UP045 - Python 3.9
    torch = _torch()
    dims = list(range(-len(sizes), 0))
    whole = of.float() if of.dtype != torch.float64 else of
    epsilon = torch.finfo(of.dtype).eps if epsilon is None else epsilon
    factor = (whole.square().mean(dims, keepdim=True) + epsilon).rsqrt()
    return whole * factor * (1 if weight is None else weight.to(whole.dtype)), factor


@_way("_fused_rms_norm_backward")
def _rms_norm_backward(grad: Any, of: Any, sizes: Any, factor: Any, weight: Any, wanted: Any) -> Any:
    dims = list(range(-len(sizes), 0))
    whole, grad = of.to(factor.dtype), grad.to(factor.dtype)
    normed = whole * factor
    scaled = grad if weight is None else grad * weight.to(factor.dtype)
    of_input = factor * (scaled - normed * (scaled * normed).mean(dims, keepdim=True))
    of_weight = (grad * normed).sum(list(range(of.dim() - len(sizes)))) if weight is not None else None
    return of_input, of_weight
