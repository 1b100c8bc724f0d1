"""Stands for ``flash_attn_2_cuda``, the compiled part of flash-attn: it allocates the same, and computes nothing.

flash-attn without its compiled part installs in seconds (``FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE``), and its Python part
then runs on a simulated card. Tensors, their order and the order in which they are freed are those of
csrc/flash_attn/flash_api.cpp of versions 2.5.0 to 2.8.3: mha_fwd, mha_varlen_fwd, mha_bwd, mha_varlen_bwd and
mha_fwd_kvcache, whose names the comments here use. Versions differ in arguments, which are found by their types, in
results, and in who pads the heads to a multiple of 8: the compiled part before 2.7, the Python part since then.

``world`` loads this module from its path if no real one is installed, in a Python that may lack memdiag.
"""

from __future__ import annotations

import math
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

torch: Any = import_module("torch")


def _installed() -> tuple[int, ...]:
    for name in ("flash-attn", "flash_attn"):
        try:
            return tuple(int(part) for part in version(name).split(".")[:3] if part.isdigit())
        except PackageNotFoundError:
            continue
    return (2, 8, 3)


VERSION = _installed()


def fwd(q: Any, k: Any, v: Any, out: Any, alibi: Any, dropout: float, _scale: float, *rest: Any) -> tuple[Any, ...]:
    """Returns what mha_fwd returns: output, logarithms of the sums, probabilities (if asked for), random state."""
    _check(q)
    _, left, right, *_, returns_softmax, _ = rest
    given = out
    batch, length, heads, size = q.shape
    key_length, key_heads = k.shape[1], k.shape[2]
    left, right = _windows(left, right, key_length)
    swaps = length == 1 and heads > key_heads and max(left, right) < 0 and not dropout and size % 8 == 0
    swaps = swaps and alibi is None
    if swaps:
        q = q.reshape(batch, key_heads, heads // key_heads, size).transpose(1, 2)
        length, heads = heads // key_heads, key_heads
        out = None if out is None else out.reshape(batch, key_heads, length, size).transpose(1, 2)
    q, k, v = _padded(q), _padded(k), _padded(v)
    out = torch.empty_like(q) if out is None or size % 8 else out
    sums = _floats(q, batch, heads, length)
    softmax = _softmax(q, (batch, heads, _up(length, 128), _up(key_length, 128)), returns_softmax)
    splits = _splits(q, (batch, heads, length, key_length), dropout)
    state = _random_state(q)
    _free(splits)
    full = out
    if size % 8:
        out = _cut(out, size, given)
    if swaps:
        shape = (batch, 1, heads * length, size)
        out, full, q = (each.transpose(1, 2).reshape(shape) for each in (out, full, q))
        sums = sums.reshape(batch, heads * length, 1)
    return (out, sums, softmax, state) if VERSION >= (2, 7) else (out, q, k, v, full, sums, softmax, state)


def varlen_fwd(q: Any, k: Any, v: Any, out: Any, starts: Any, _key_starts: Any, *rest: Any) -> tuple[Any, ...]:
    """Returns what mha_varlen_fwd returns, for sequences of any length in one row."""
    _check(q)
    first = _first_number(rest)
    alibi, table = rest[first - 1], rest[first - 2] if first > 2 else None
    longest, longest_key, dropout, _, _, _, left, right, *_, returns_softmax, _ = rest[first:]
    longest, longest_key, given = int(longest), int(longest_key), out
    batch, (_, heads, size) = len(starts) - 1, q.shape
    key_heads = k.shape[1 if table is None else 2]
    swaps = longest == 1 and heads > key_heads and max(left, right) < 0 and not dropout and size % 8 == 0
    swaps = swaps and alibi is None
    if swaps:
        longest, shape = heads // key_heads, (batch, key_heads, heads // key_heads, size)
        heads = key_heads
        q = q.reshape(shape).transpose(1, 2).reshape(batch * longest, heads, size)
        out = None if out is None else out.reshape(shape).transpose(1, 2).reshape(batch * longest, heads, size)
    q, k, v = _padded(q), _padded(k), _padded(v)
    out = torch.empty_like(q) if out is None or size % 8 else out
    is_padded = VERSION < (2, 6)
    sums = _floats(q, batch, heads, longest) if is_padded else _floats(q, heads, q.shape[0])
    softmax = _softmax(q, (batch, heads, _up(longest, 128), _up(longest_key, 128)), returns_softmax)
    splits = _splits(q, (batch, heads, longest, longest_key), dropout) if swaps else []
    state = _random_state(q)
    _free(splits)
    full = out
    if size % 8:
        out = _cut(out, size, given)
    if swaps:
        before, after = (batch, longest, heads, size), (batch, heads * longest, size)
        out = out.reshape(before).transpose(1, 2).reshape(after)
        full = full.reshape(before).transpose(1, 2).reshape(after) if VERSION < (2, 7) else full
        q = q.reshape(before).transpose(1, 2).reshape(after)
        sums = sums.reshape((batch, heads * longest, 1) if is_padded else (heads * longest, batch))
    return (out, sums, softmax, state) if VERSION >= (2, 7) else (out, q, k, v, full, sums, softmax, state)


def fwd_kvcache(q: Any, keys: Any, values: Any, k: Any, v: Any, lengths: Any, *rest: Any) -> tuple[Any, ...]:  # noqa: ARG001
    """Returns what mha_fwd_kvcache returns: output, and logarithms of the sums."""
    _check(q, always_pads=True)
    first = next(index for index, each in enumerate(rest) if isinstance(each, float))  # softmax_scale
    table, alibi, given = rest[first - 3 : first]
    _, _, left, right, *_, num_splits = rest[first:]
    batch, length, heads, size = q.shape
    key_length, key_heads = keys.shape[1] if table is None else table.shape[1] * keys.shape[1], keys.shape[2]
    swaps = length == 1 and heads > key_heads and max(left, right) < 0 and size % 8 == 0 and alibi is None
    if swaps:
        q = q.reshape(batch, key_heads, heads // key_heads, size).transpose(1, 2)
        length, heads = heads // key_heads, key_heads
    q, keys, values = (_padded(each, always=True) for each in (q, keys, values))
    out = torch.empty_like(q) if given is None or size % 8 else given
    sums = _floats(q, batch, heads, length)
    new = [] if k is None else [_padded(k, always=True), _padded(v, always=True)]
    splits = _splits(q, (batch, heads, length, key_length), 0, num_splits)
    _free(splits)
    if size % 8:
        out = _cut(out, size, given)
    if swaps:
        out = out.transpose(1, 2).reshape(batch, 1, heads * length, size)
        sums = sums.reshape(batch, heads * length, 1)
    _free(new)
    return out, sums


def bwd(grad: Any, q: Any, k: Any, v: Any, _out: Any, _sums: Any, *rest: Any) -> tuple[Any, ...]:
    """Returns what mha_bwd returns: the gradients, and the sums of products."""
    _check(q)
    dq, dk, dv, *_, is_deterministic, _, _ = rest
    batch, length, heads, size = q.shape
    rows = (batch, _up(length, 128))
    return _backward(
        (grad, q, k, v),
        (dq, dk, dv),
        (batch, heads, rows[1]),
        (*rows, heads, _head(size)),
        _num_splits_deterministic(q, batch * heads) if is_deterministic else 0,
    )


def varlen_bwd(grad: Any, q: Any, k: Any, v: Any, _out: Any, _sums: Any, *rest: Any) -> tuple[Any, ...]:
    """Returns what mha_varlen_bwd returns: the gradients, and the sums of products."""
    _check(q)
    dq, dk, dv, starts, *_, is_deterministic, _, _ = rest
    longest = int(rest[_first_number(rest)])
    rows, heads, size = q.shape
    batch = len(starts) - 1
    return _backward(
        (grad, q, k, v),
        (dq, dk, dv),
        (heads, rows + 128 * batch) if VERSION >= (2, 6) else (batch, heads, _up(longest, 128)),
        (rows + 128 * batch, heads, _head(size)),
        _num_splits_deterministic(q, batch * heads) if is_deterministic else 0,
    )


def _backward(
    inputs: tuple[Any, ...], gradients: tuple[Any, ...], sums: tuple[int, ...], rows: tuple[int, ...], num_splits: int
) -> tuple[Any, ...]:
    """Allocates as the backward functions do.

    Args:
        inputs: Gradient of the output, queries, keys, values.
        gradients: Of queries, keys and values; None for each that the function allocates itself.
        sums: Shape of the sums of products.
        rows: Shape in which the gradient of the queries is added up, in fp32.
        num_splits: Number of such sums if the result must not depend on their order, else 0.
    """
    grad, q, k, v = inputs
    dq, dk, dv = (torch.empty_like(of) if one is None else one for one, of in zip(gradients, (q, k, v)))
    grad = _padded(grad)
    products = _floats(q, *sums)
    if num_splits:
        total = torch.zeros((num_splits, *rows), dtype=torch.float32, device=q.device)
    else:
        total = _floats(q, *rows)
    if k.shape[-2] != q.shape[-2]:
        shape = (*k.shape[:-2], q.shape[-2], q.shape[-1])
        expanded = [torch.empty(shape, dtype=q.dtype, device=q.device) for _ in range(2)]
        for one, of in zip(expanded, (dk, dv)):
            groups = (*k.shape[:-1], q.shape[-2] // k.shape[-2], q.shape[-1])
            torch.sum(one.reshape(groups), len(groups) - 2, out=of)
        del one
        _free(expanded)
    del total, grad
    return dq, dk, dv, products


def _check(q: Any, always_pads: bool = False) -> None:
    if torch.cuda.get_device_capability(q.device)[0] < 8:
        raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.")
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
    if q.shape[-1] > 256:
        raise RuntimeError("FlashAttention only supports head dimension at most 256")
    if q.shape[-1] % 8 and VERSION >= (2, 7) and not always_pads:
        raise RuntimeError("query, key, value, and out_ must have a head_size that is a multiple of 8")


def _first_number(arguments: tuple[Any, ...]) -> int:
    """Returns the place of max_seqlen_q: versions have different optional tensors, of one or two dimensions, before."""
    return next(i for i, each in enumerate(arguments) if each is not None and not getattr(each, "shape", ()))


def _windows(left: int, right: int, key_length: int) -> tuple[int, int]:
    return -1 if left >= key_length else left, -1 if right >= key_length else right


def _up(number: int, multiple: int) -> int:
    return (number + multiple - 1) // multiple * multiple


def _head(size: int) -> int:
    """Returns head_size_rounded: the size of a head in sums in fp32."""
    size = _up(size, 8)
    if VERSION >= (2, 8):
        return _up(size, 32 if size <= 128 else 64)
    if VERSION >= (2, 6, 2) and size > 192:
        return 256
    return _up(size, 32)


def _padded(tensor: Any, always: bool = False) -> Any:
    """Pads heads to a multiple of 8, if this version does that in its compiled part."""
    missing = -tensor.shape[-1] % 8
    if not missing or (VERSION >= (2, 7) and not always):
        return tensor
    return torch.nn.functional.pad(tensor, (0, missing))


def _cut(out: Any, size: int, given: Any) -> Any:
    out = out[..., :size]
    if given is not None:
        given.copy_(out)
    return out


def _floats(like: Any, *shape: int) -> Any:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def _softmax(like: Any, shape: tuple[int, ...], is_returned: bool) -> Any:
    if is_returned:
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    return torch.empty(0, dtype=like.dtype, device=like.device) if VERSION >= (2, 7) else None


def _random_state(like: Any) -> Any:
    return torch.empty(2, dtype=torch.int64, device=like.device)


def _free(tensors: list[Any]) -> None:
    """Frees tensors as C++ does: the last one first."""
    while tensors:
        tensors.pop()


def _num_processors(like: Any) -> int:
    return int(torch.cuda.get_device_properties(like.device).multi_processor_count)


def _num_splits_deterministic(like: Any, batch_heads: int) -> int:
    return -(-_num_processors(like) // batch_heads)


def _splits(q: Any, shape: tuple[int, int, int, int], dropout: float, num_splits: int = 0) -> list[Any]:
    """Allocates as set_params_splitkv: sums of parts, if few queries would leave processors idle.

    Args:
        q: Queries, of padded heads.
        shape: Batch, heads, length of queries, length of keys.
        dropout: Probability; with it, keys are not split.
        num_splits: Number of parts, or 0 if it is to be chosen.
    """
    if dropout:
        return []
    batch, heads, length, key_length = shape
    size = q.shape[-1]
    if num_splits < 1:
        block = 256 if size <= 64 else 128 if size <= 128 else 64
        processors = _num_processors(q) * (2 if VERSION >= (2, 5, 7) else 1)
        num_splits = _num_splits(batch * heads * -(-length // 64), processors, -(-key_length // block))
    if num_splits <= 1:
        return []
    made = [
        _floats(q, num_splits, batch, heads, length),
        _floats(q, num_splits, batch, heads, length, _head(size)),
    ]
    if VERSION < (2, 6, 2):  # local variables of the function, gone before the kernel is launched
        _free(made)
    return made


def _num_splits(blocks: int, processors: int, key_blocks: int, most: int = 128) -> int:
    """Returns num_splits_heuristic: the smallest number of parts that keeps 85 % as many processors busy as the best.

    Args:
        blocks: Blocks of queries, of all heads.
        processors: Multiprocessors, counted as the version does.
        key_blocks: Blocks of keys.
        most: Largest number of parts.
    """
    if blocks >= 0.8 * processors:
        return 1
    efficiency = {}
    for parts in range(1, min(most, processors, key_blocks) + 1):
        if parts == 1 or -(-key_blocks // parts) != -(-key_blocks // (parts - 1)):
            waves = blocks * parts / processors
            efficiency[parts] = waves / math.ceil(waves)
    best = max(efficiency.values(), default=0.0)
    return next((parts for parts, each in efficiency.items() if each >= 0.85 * best), 1)
