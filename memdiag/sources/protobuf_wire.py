"""Reads the wire format of protocol buffers: numbers and byte strings by field, without a schema and within bounds.

A reader for one message type needs a few lines of this, and no generated code or library.
"""

from __future__ import annotations

from collections.abc import Iterator

_MOST_BITS = 64
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yields number and value of each field of a message: an int, or the bytes of a string or an inner message.

    Raises:
        ValueError: The message is truncated or damaged.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if not number:
            raise ValueError("a field has the number 0")
        if kind == VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind in {FIXED32, FIXED64}:
            size = 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind} does not exist")
        if size > end - at:
            raise ValueError("a field is longer than the message")
        piece = data[at : at + size]
        at += size
        yield number, piece if kind == BYTES else int.from_bytes(piece, "little")


def numbers(value: int | memoryview) -> list[int]:
    """Returns the numbers of a repeated field, which is packed into bytes or has one number.

    Raises:
        ValueError: The bytes are truncated.
    """
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(number)
    return found


def signed(value: int) -> int:
    """Returns an int64 that the wire stores as an unsigned number."""
    return value - (1 << 64) if value >> 63 else value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift >= _MOST_BITS + 6:
            raise ValueError("a number is truncated")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << _MOST_BITS) - 1), at
        shift += 7
