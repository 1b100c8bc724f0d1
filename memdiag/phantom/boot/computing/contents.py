"""The bytes of tensors on the device: copies of known values on the CPU, and new values for them.

The simulated runtime provides six C functions for this (``core/computed.cpp``, ``npu/computed.c``). None of them
allocates on the device.
"""

from __future__ import annotations

import ctypes
import threading
from array import array
from typing import Any

_SPARSE, _LARGE_BYTES = 4, 1 << 20  # of a larger span, fewer than one element in four
_DIMS = 2  # position of the number of dimensions
_MANY_PIECES = 1024  # the contiguous pieces of a strided tensor are visited if there are at most so many
_MOST_PIECES = 1 << 20  # the same for a tensor that is small enough to be copied


class Contents:
    """Contents of the device.

    Args:
        torch: The module.
        limit_bytes: The largest tensor that is copied.
        integer_bytes: The same for tensors of integers and booleans, if larger.
    """

    def __init__(self, torch: Any, limit_bytes: int, integer_bytes: int = 0) -> None:
        self._torch = torch
        self._here = threading.local()
        self._limit_bytes = limit_bytes
        self._integer_bytes = max(limit_bytes, integer_bytes)
        library = ctypes.PyDLL(None)  # the calls are short: the interpreter lock is kept
        self._peek, self._poke = library.memdiag_phantom_peek, library.memdiag_phantom_poke
        self._peek_strided = library.memdiag_phantom_peek_strided
        self._poke_strided = library.memdiag_phantom_poke_strided
        self._begin, self.end = library.memdiag_phantom_begin, library.memdiag_phantom_end
        self._peek.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
        self._poke.argtypes = (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)
        self._peek_strided.argtypes = self._poke_strided.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._begin.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64)
        self._poke.restype = self._poke_strided.restype = self._begin.restype = self.end.restype = None

    def is_small(self, tensor: Any) -> bool:
        """Returns whether a tensor is small enough to be copied."""
        return bool(tensor.numel() * tensor.element_size() <= self._limit_of(tensor))

    def _limit_of(self, tensor: Any) -> int:
        is_integer = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
        return self._integer_bytes if is_integer else self._limit_bytes

    def may_be_known(self, tensor: Any, is_made: bool) -> bool:
        """Returns whether a tensor is small and known, with few calls.

        Args:
            tensor: Any tensor. Of one with gaps, only the size is looked at.
            is_made: Whether its previous content does not matter.
        """
        try:
            num_bytes = tensor.nbytes
            if num_bytes > self._limit_bytes:
                return False
            if tensor.is_cpu:
                return not is_made
            return bool(is_made or not tensor.is_contiguous() or self._peek(None, tensor.data_ptr(), num_bytes))
        except RuntimeError:  # a sparse tensor, for example
            return False

    def fits(self, sizes: Any, each: int) -> bool:
        """Returns whether a tensor of such sizes would be small, with elements of ``each`` bytes."""
        for size in sizes:
            each *= size
        return each <= self._limit_bytes

    def read(self, tensor: Any) -> Any:
        """Returns a copy of a device tensor on the CPU, or None if part of it is unknown.

        The strides are the same, unless the tensor is a small part of a large one.
        """
        count, each = tensor.numel(), tensor.element_size()
        sizes, strides = tensor.size(), tensor.stride()
        span = _span(sizes, strides) if count else 0
        if span * each <= self._limit_of(tensor):
            is_sparse = span > _SPARSE * count and span * each > _LARGE_BYTES
            image = self._scratch(span, tensor) if is_sparse else self._empty(span, tensor)
            if image.nbytes != span * each:  # the memory would not be sufficient
                return None
            if not count or self._peek(image.data_ptr(), tensor.data_ptr(), span * each):
                found = image.as_strided(sizes, strides)
                return found.clone(memory_format=self._torch.contiguous_format) if is_sparse else found
        place = self._place_of(tensor)
        if not place[_DIMS]:
            return None
        copy = self._torch.empty(sizes, dtype=tensor.dtype, device="cpu")
        return copy if self._peek_strided(copy.data_ptr(), place.buffer_info()[0]) else None

    def _empty(self, count: int, like: Any) -> Any:
        return self._torch.empty(count, dtype=like.dtype, device="cpu")

    def _scratch(self, count: int, like: Any) -> Any:
        """Returns memory for one read by this thread, which is kept: new pages would cost more than the copy."""
        found = getattr(self._here, "scratch", None)
        if found is None or found.numel() < count * like.element_size():
            found = self._here.scratch = self._torch.empty(
                count * like.element_size(), dtype=self._torch.uint8, device="cpu"
            )
        return found[: count * like.element_size()].view(like.dtype)

    def write(self, tensor: Any, value: Any) -> bool:
        """Sets a tensor's bytes to those of one on the CPU; returns whether it succeeded."""
        sizes, strides, each = tensor.size(), tensor.stride(), tensor.element_size()
        if value.size() != sizes:
            if value.numel() != tensor.numel():
                return False
            value = value.reshape(sizes)
        count = tensor.numel()
        if not count:
            return True
        if _span(sizes, strides) == count:  # dense, in any order of dimensions
            if value.dtype != tensor.dtype or value.stride() != strides:
                value = self._torch.empty_strided(sizes, strides, dtype=tensor.dtype, device="cpu").copy_(value)
            self._poke(tensor.data_ptr(), value.data_ptr(), count * each)
            return True
        place = self._place_of(tensor)
        if not place[_DIMS]:
            self.forget(tensor)
            return False
        value = value.to(tensor.dtype).contiguous()
        self._poke_strided(place.buffer_info()[0], value.data_ptr())
        return True

    def forget(self, tensor: Any) -> None:
        """Makes a tensor's bytes unknown."""
        place = self._place_of(tensor)  # the variable keeps the numbers alive during the call
        self._poke_strided(place.buffer_info()[0], None)

    def _place_of(self, tensor: Any) -> array[int]:
        """Returns address, bytes of an element, number of dimensions, sizes and strides of a tensor, for the runtime.

        The gaps between its elements belong to other tensors, such as the padding around a copy. A tensor without gaps
        is returned as one element. So is a large tensor of many pieces, with its gaps, since visiting each piece would
        take too long.
        """
        count, each, sizes, strides = tensor.numel(), tensor.element_size(), tensor.size(), tensor.stride()
        span = _span(sizes, strides) if count else 0
        if span > count:
            num_pieces = count // sizes[-1] if strides[-1] == 1 else count
            if num_pieces <= (_MOST_PIECES if self.is_small(tensor) else _MANY_PIECES):
                return array("Q", (tensor.data_ptr(), each, len(sizes), *sizes, *strides))
        return array("Q", (tensor.data_ptr(), span * each, 0))

    def begin(self, changed: list[Any], num_expected: int) -> bool:
        """Reports the start of an operator in this thread, until ``end``; returns whether it succeeded.

        Args:
            changed: Device tensors that it changes.
            num_expected: Number of elements it will find, or -1 if unknown.
        """
        places = array("Q")
        try:
            for tensor in changed:
                places += self._place_of(tensor)
        except Exception:  # noqa: BLE001
            # a tensor without plain memory; then everything that seems to be written counts as written
            return False
        self._begin(places.buffer_info()[0], len(changed), num_expected)
        return True


def _span(sizes: Any, strides: Any) -> int:
    """Returns the number of elements from a tensor's first to its last."""
    span = 1
    for size, stride in zip(sizes, strides):
        span += (size - 1) * stride
    return span
