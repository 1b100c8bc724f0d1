"""Finds the tensors whose memory a tensor uses, if it has none of its own: wrappers, sparse tensors, vmap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_DEEPEST = 4  # wrappers inside wrappers
_NO_MEMORY = (RuntimeError, NotImplementedError, AttributeError, ValueError, TypeError)
# Parts of sparse layouts: those of torch.sparse_coo need no coalescing.
_OF_LAYOUT = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices", "values"),
}


def with_memory(torch: Any, tensor: Any, deepest: int = _DEEPEST) -> Iterator[Any]:
    """Yields the tensors whose memory a tensor uses: itself, or its parts.

    A sparse tensor consists of indices and values, a wrapper (DTensor, a quantised weight) of the tensors that it
    names, and a tensor inside ``vmap`` or ``grad`` of the one that it wraps. A tensor without memory yields nothing.

    Args:
        torch: The module torch.
        tensor: A tensor, or an object like one.
        deepest: Most wrappers inside wrappers.
    """
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter and deepest:
        flatten = getattr(tensor, "__tensor_flatten__", None)
        local = getattr(tensor, "_local_tensor", None)  # a DTensor before torch 2.1 cannot be flattened
        if local is not None or flatten is not None:
            for part in (local,) if local is not None else _attributes(tensor):
                yield from with_memory(torch, part, deepest - 1)
            return
    functions = getattr(torch._C, "_functorch", None)
    if functions is not None and functions.is_functorch_wrapped_tensor(tensor):
        if deepest:
            yield from with_memory(torch, functions.get_unwrapped(tensor), deepest - 1)
        return
    names = _OF_LAYOUT.get(str(tensor.layout)) if deepest else None
    if names is None:
        yield tensor
        return
    with torch.no_grad():
        for name in names:
            yield getattr(tensor, name)()


def _attributes(tensor: Any) -> list[Any]:
    try:
        return [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    except _NO_MEMORY:
        return []


def storages_of(torch: Any, tensor: Any) -> list[tuple[str, int, int, int]]:
    """Returns device type, device number, address and bytes of each storage that a tensor uses."""
    found = []
    try:
        for part in with_memory(torch, tensor):
            device, storage = part.device, part.untyped_storage()
            if addr := storage.data_ptr():
                found.append((device.type, device.index or 0, addr, storage.nbytes()))
    except _NO_MEMORY:  # fake, meta and lazy tensors have no storage
        return found
    return found
