"""CPU implementations of operators that only the device has: attention, cuDNN layers, fused norms.

An implementation takes the operator's arguments and returns its results, with None for results that only the operator's
own backward pass reads. ``unread`` names arguments that it does not need. With ``sees_answers`` it receives the results
of the device's operator, and with ``reads`` a function that copies a device tensor on demand.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import original

_MOST_SCORES = 1 << 22  # elements: attention has one for each pair of positions
_SCORE_BYTES = 4  # single precision

WAYS: dict[str, Any] = {}


def way(
    *names: str, unread: tuple[str, ...] = (), sees_answers: bool = False, reads: bool = False
) -> Callable[[Any], Any]:
    """Registers a function as the implementation of operators."""

    def keep(function: Any) -> Any:
        function.unread, function.sees_answers, function.reads = unread, sees_answers, reads
        WAYS.update(dict.fromkeys(names, function))
        return function

    return keep


def most_scores() -> int:
    """Returns how many scores attention may have: more than by default if the user computes larger tensors."""
    limit = os.environ.get("MEMDIAG_PHANTOM_COMPUTE", "")
    return max(_MOST_SCORES, int(limit) // _SCORE_BYTES if limit.isdecimal() else 0)


class Attention:
    """Attention by its definition, in single precision.

    Args:
        query, key, value, bias: As PyTorch's operators take them (batch, heads, positions, width); missing key heads
            are repeated.
        is_causal: Whether each position sees only earlier ones.
        scale: Scale of the scores, or None to derive it from the width.
        dropout: Fraction of the scores that are dropped.
        seeds: Tensors with the seed of the dropout: the same in the forward and the backward pass.
    """

    def __init__(
        self,
        query: Any,
        key: Any,
        value: Any,
        bias: Any,
        *,
        is_causal: bool,
        scale: Any,
        dropout: float = 0.0,
        seeds: Any = (),
    ) -> None:
        torch = original.torch()
        if query.numel() // max(query.shape[-1], 1) * key.shape[-2] > most_scores():
            raise ValueError("too many scores")
        self.groups = query.shape[1] // max(key.shape[1], 1)
        self.query, self.key, self.value = query.float(), self._spread(key), self._spread(value)
        self.scale = query.shape[-1] ** -0.5 if scale is None else scale
        scores = self.query @ self.key.transpose(-2, -1) * self.scale
        if bias is not None:
            scores = scores.masked_fill(~bias, float("-inf")) if bias.dtype == torch.bool else scores + bias.float()
        if is_causal:
            scores = scores.masked_fill(
                torch.ones(scores.shape[-2:], dtype=torch.bool, device="cpu").tril().logical_not(), float("-inf")
            )
        self.sums = scores.logsumexp(-1)
        self.weights = scores.softmax(-1).nan_to_num(0.0)
        self.kept: Any = 1.0
        if dropout > 0:
            generator = torch.Generator(device="cpu").manual_seed(_mixed(seeds))
            chance = torch.empty(self.weights.shape, dtype=torch.float32, device="cpu").uniform_(generator=generator)
            self.kept = (chance >= dropout).float() / (1 - dropout)

    def _spread(self, tensor: Any) -> Any:
        return tensor.float().repeat_interleave(self.groups, 1) if self.groups > 1 else tensor.float()

    def _gather(self, gradient: Any) -> Any:
        return gradient.unflatten(1, (-1, self.groups)).sum(2) if self.groups > 1 else gradient

    def output(self) -> Any:
        """Returns the output."""
        return self.weights * self.kept @ self.value

    def gradients(self, of_output: Any) -> tuple[Any, Any, Any, Any]:
        """Returns the gradients of query, key, value and bias, given that of the output."""
        of_output = of_output.float()
        of_weights = of_output @ self.value.transpose(-2, -1) * self.kept
        of_scores = self.weights * (of_weights - (of_weights * self.weights).sum(-1, keepdim=True))
        of_query = of_scores @ self.key * self.scale
        of_key = of_scores.transpose(-2, -1) @ self.query * self.scale
        of_value = (self.weights * self.kept).transpose(-2, -1) @ of_output
        return of_query, self._gather(of_key), self._gather(of_value), of_scores


def _mixed(seeds: Any) -> int:
    mixed = 0
    for seed in seeds:
        for number in seed.reshape(-1).tolist():
            mixed = (mixed * 0x9E3779B97F4A7C15 + number + 1) & 0x7FFF_FFFF_FFFF_FFFF
    return mixed


def _drawn() -> tuple[Any, Any]:
    """Returns seeds for the backward pass: of the generator that was seeded for this operator, with offset 0."""
    torch = original.torch()
    return torch.tensor(torch.default_generator.initial_seed(), device="cpu"), torch.tensor(0, device="cpu")


@way("_scaled_dot_product_flash_attention")
def _flash(
    query: Any, key: Any, value: Any, dropout: float = 0.0, is_causal: bool = False, *_: Any, scale: Any = None
) -> Any:
    seed, nothing = _drawn()
    made = Attention(query, key, value, None, is_causal=is_causal, scale=scale, dropout=dropout, seeds=(seed, nothing))
    return made.output(), made.sums, None, None, None, None, seed.expand(2), None, None


@way("_scaled_dot_product_efficient_attention", sees_answers=True)
def _efficient(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    _: bool,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Any = None,
    answers: Any,
) -> Any:
    seeds = _drawn() if answers[2].device.type != "cpu" else answers[2:4]  # in a graph they are on the device
    made = Attention(query, key, value, bias, is_causal=is_causal, scale=scale, dropout=dropout, seeds=seeds)
    return made.output(), None, *seeds


@way("_scaled_dot_product_cudnn_attention")
def _cudnn(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    _: bool,
    dropout: float = 0.0,
    is_causal: bool = False,
    *__: Any,
    scale: Any = None,
) -> Any:
    seeds = _drawn()
    made = Attention(query, key, value, bias, is_causal=is_causal, scale=scale, dropout=dropout, seeds=seeds)
    return made.output(), None, None, None, None, None, *seeds, None


_BEHIND = ("out", "logsumexp", "cum_seq_q", "cum_seq_k", "unused")


@way("_scaled_dot_product_flash_attention_backward", unread=(*_BEHIND, "philox_offset"))
def _flash_backward(grad: Any, query: Any, key: Any, value: Any, *rest: Any, scale: Any = None) -> Any:
    dropout, is_causal, seed = rest[6:9]  # after the output: the sums, and the sequence lengths
    seeds = (seed.reshape(-1)[:1], original.torch().zeros(1, dtype=original.torch().int64, device="cpu"))
    return Attention(query, key, value, None, is_causal=is_causal, scale=scale, dropout=dropout, seeds=seeds).gradients(
        grad
    )[:3]


@way("_scaled_dot_product_efficient_attention_backward", unread=_BEHIND)
def _efficient_backward(grad: Any, query: Any, key: Any, value: Any, bias: Any, *rest: Any, scale: Any = None) -> Any:
    # rest[:2] are the output and the sums, rest[5] the requested gradients
    seeds, dropout, is_causal = (
        rest[2:4],
        rest[4],
        len(rest) > 6 and rest[6],
    )
    found = Attention(
        query, key, value, bias, is_causal=is_causal, scale=scale, dropout=dropout, seeds=seeds
    ).gradients(grad)
    return (*found[:3], None if bias is None else found[3].sum_to_size(bias.shape))


@way("_scaled_dot_product_cudnn_attention_backward", unread=_BEHIND)
def _cudnn_backward(grad: Any, query: Any, key: Any, value: Any, *rest: Any, scale: Any = None) -> Any:
    seeds, bias, dropout, is_causal = rest[2:4], rest[4], rest[9], rest[10]
    return Attention(query, key, value, bias, is_causal=is_causal, scale=scale, dropout=dropout, seeds=seeds).gradients(
        grad
    )[:3]


@way("cudnn_batch_norm")
def _batch_norm(
    of: Any, weight: Any, bias: Any, mean: Any, variance: Any, is_training: bool, momentum: float, epsilon: float
) -> Any:
    return (
        *original.torch().ops.aten.native_batch_norm(of, weight, bias, mean, variance, is_training, momentum, epsilon),
        None,
    )


@way("cudnn_batch_norm_backward", unread=("reserveSpace",))
def _batch_norm_backward(
    of: Any,
    grad: Any,
    weight: Any,
    mean: Any,
    variance: Any,
    saved_mean: Any,
    saved_variance: Any,
    epsilon: float,
    _: Any,
) -> Any:
    backward = original.torch().ops.aten.native_batch_norm_backward
    return backward(grad, of, weight, mean, variance, saved_mean, saved_variance, True, epsilon, [True] * 3)


@way("histc")
def _histogram(of: Any, bins: int = 100, least: float = 0, most: float = 0) -> Any:
    # The CPU has no histogram of integers.
    found = original.torch().histc(of if of.is_floating_point() else of.double(), bins, least, most)
    return found.to(of.dtype)


@way("_fused_rms_norm")
def _rms_norm(of: Any, sizes: Any, weight: Any = None, epsilon: Any = None) -> Any:
    torch = original.torch()
    dims = list(range(-len(sizes), 0))
    whole = of.float() if of.dtype != torch.float64 else of
    epsilon = torch.finfo(of.dtype).eps if epsilon is None else epsilon
    factor = (whole.square().mean(dims, keepdim=True) + epsilon).rsqrt()
    return whole * factor * (1 if weight is None else weight.to(whole.dtype)), factor


@way("_fused_rms_norm_backward")
def _rms_norm_backward(grad: Any, of: Any, sizes: Any, factor: Any, weight: Any, _: Any) -> Any:
    dims = list(range(-len(sizes), 0))
    whole, grad = of.to(factor.dtype), grad.to(factor.dtype)
    normed = whole * factor
    scaled = grad if weight is None else grad * weight.to(factor.dtype)
    of_input = factor * (scaled - normed * (scaled * normed).mean(dims, keepdim=True))
    of_weight = (grad * normed).sum(list(range(of.dim() - len(sizes)))) if weight is not None else None
    return of_input, of_weight
