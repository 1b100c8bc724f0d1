"""Columns of numbers as text: little-endian int64, compressed by zlib, in base64.

They are text since PyTorch's JavaScript viewer knows no opcode for bytes, and would refuse the whole file.
"""

from __future__ import annotations

import binascii
import sys
import zlib
from array import array
from collections.abc import Iterable

_LEVEL = 1  # zlib's fastest level: columns shrink 2 to 170 times, and level 9 saves little more
# upper bound of unpacked columns: _FLOOR bytes, plus _RATIO for each byte of text
_FLOOR, _RATIO = (
    1 << 28,
    40,
)


def pack(column: array[int]) -> str:
    """Returns a column of int64 (``array("q")``) as text."""
    if sys.byteorder != "little":
        column = array("q", column)
        column.byteswap()
    return pack_bytes(column.tobytes())


def pack_bytes(data: bytes) -> str:
    """Returns little-endian int64 values as text."""
    return binascii.b2a_base64(zlib.compress(data, _LEVEL), newline=False).decode()


class Unpacker:
    """Unpacks the columns of one file. The limit on their size, together, follows from the size of their text."""

    def __init__(self, columns: Iterable[object]) -> None:
        self._left = _FLOOR + _RATIO * sum(len(column) for column in columns if isinstance(column, str))

    def unpack(self, column: object) -> bytes:
        """Returns little-endian int64 values.

        Args:
            column: A result of ``pack``. Older recordings contain bytes, which are returned unchanged.

        Raises:
            ValueError: It is not a column, is damaged, or unpacks to more memory than allowed.
        """
        data = self._inflated(column) if isinstance(column, str) else column
        if not isinstance(data, bytes) or len(data) % 8:
            raise ValueError("it is not a column of 64-bit numbers")
        return data

    def _inflated(self, column: str) -> bytes:
        inflate = zlib.decompressobj()
        try:
            data = inflate.decompress(binascii.a2b_base64(column, strict_mode=True), self._left + 1)
        except (zlib.error, binascii.Error) as error:
            raise ValueError(str(error)) from None
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("it unpacks to more than its size allows (a memory bomb)")
        if not inflate.eof or inflate.unused_data:
            raise ValueError("it is cut off, or followed by something else")
        return data
