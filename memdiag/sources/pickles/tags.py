"""Tags of the values on a tape (see ``machine``)."""

from __future__ import annotations

from typing import Any

INT, STR, BOX, CONST, REAL, BYTES, WIDE, NONE_THERE = range(8)
C_NONE, C_FALSE, C_TRUE, C_PENDING, ROW_0 = range(5)
PENDING = C_PENDING << 3 | CONST  # an empty dict that gets its items next
LIST, DICT, TUPLE, SET = range(4)
# Encoding of a string's bytes.
UTF8, RAW_ESCAPE, QUOTED, LITTLE_ENDIAN, DECIMAL, RAW_BYTES, FLOAT_TEXT = range(7)


def is_row(values: Any) -> Any:
    """Returns whether tagged values (one or many) are entries stored as rows."""
    return (values & 7 == CONST) & (values >> 3 >= ROW_0)
