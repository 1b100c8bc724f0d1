"""How the C and C++ functions used by the parsers convert text to numbers: they read the leading part only.

They are ``std::stoull`` and ``std::stod`` since torch 2.10, ``std::stoi`` before: "64MB" is 64, and "-1" is the largest
number.
"""

from __future__ import annotations

import math
import re

SIZE_MAX = 2**64 - 1
_INT_MAX = 2**31 - 1
_WHOLE = re.compile(r"[ \t\n\v\f\r]*([+-]?)([0-9]+)")
_DECIMAL = re.compile(r"[ \t\n\v\f\r]*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_HEX = re.compile(r"[ \t\n\v\f\r]*([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?)")
_NAMED = re.compile(r"[ \t\n\v\f\r]*([+-]?)(infinity|inf|nan)", re.IGNORECASE)
_SMALLEST_NORMAL = 2.2250738585072014e-308
_MOST_DIGITS = 400  # numbers with more digits never fit


def to_size(text: str) -> int | None:
    """Returns the result of ``std::stoull`` for ``text``, 0 to 2^64-1, or None if it raises."""
    match = _WHOLE.match(text)
    if not match or len(match.group(2).lstrip("0")) > _MOST_DIGITS:
        return None
    number = int(match.group(2).lstrip("0") or "0")
    if number > SIZE_MAX:
        return None
    return (-number) % (SIZE_MAX + 1) if match.group(1) == "-" else number


def to_int(text: str) -> int | None:
    """Returns the result of ``std::stoi`` for ``text`` as a size (negative numbers wrap), or None if it raises."""
    match = _WHOLE.match(text)
    if not match or len(match.group(2).lstrip("0")) > _MOST_DIGITS:
        return None
    number = int(match.group(2).lstrip("0") or "0")
    if match.group(1) == "-":
        return (-number) % (SIZE_MAX + 1) if number <= _INT_MAX + 1 else None
    return number if number <= _INT_MAX else None


def to_double(text: str) -> float | None:
    """Returns the result of ``std::stod`` for ``text``, or None if it raises: not a number, too large, or subnormal."""
    if match := _NAMED.match(text):
        value = math.nan if match.group(2).lower() == "nan" else math.inf
        return -value if match.group(1) == "-" else value
    if match := _HEX.match(text):
        try:
            value = float.fromhex(match.group(1))
        except OverflowError:
            return None
        digits = re.split(r"[pP]", match.group(1))[0].lower().partition("0x")[2]
    elif match := _DECIMAL.match(text):
        value = float(match.group(1))
        digits = re.split(r"[eE]", match.group(1))[0]
    else:
        return None
    if math.isinf(value):
        return None
    is_zero = not re.search(r"[1-9a-fA-F]", digits)
    return None if abs(value) < _SMALLEST_NORMAL and not is_zero else value


def is_power_of_two(number: int) -> bool:
    """Returns whether ``number`` is 1, 2, 4 and so on."""
    return number > 0 and not number & (number - 1)
