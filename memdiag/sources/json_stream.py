"""Reads large JSON one value at a time: a gigabyte trace needs only as much memory as its largest event.

Python's decoder works on a moving window of text; an incomplete value is retried with more text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TextIO

from memdiag.sources.growing import ByteLimit
from memdiag.units import MIB

_CHUNK = MIB
_LARGEST_VALUE = 4 * MIB  # characters; their Python objects take up to 26 times as much
_ELEMENT = 32  # budget bytes charged for every element, even an ignored one, to limit the work
_SPACE = re.compile(r"[ \t\r\n]*")


class JsonStream:
    """A cursor over JSON text.

    Its methods raise ValueError if the text is not JSON or a single value is absurdly long, and RefusedFile if the
    budget is exhausted.
    """

    def __init__(self, text: TextIO, budget: ByteLimit) -> None:
        self._file = text
        self._budget = budget
        self._text = ""
        self._at = 0
        self._ended = False
        self._decode = json.JSONDecoder(strict=False).raw_decode  # names may contain raw control characters

    def _more(self, size: int = _CHUNK) -> bool:
        """Drops the text that was read and adds more; returns False at the end of the file."""
        if self._ended:
            return False
        self._text, self._at = self._text[self._at :], 0
        piece = self._file.read(size)
        self._ended = not piece
        self._text += piece
        return not self._ended

    def peek(self) -> str:
        """Returns the next non-space character without consuming it; "" at the end."""
        while True:
            text, at = self._text, self._at
            if at < len(text) and text[at] > " ":
                return text[at]
            self._at = at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
            if at < len(text):
                return text[at]
            if not self._more():
                return ""

    def take(self, expected: str) -> None:
        """Consumes one character, which must be next."""
        found = self.peek()
        if found != expected:
            raise ValueError(
                f"expected {expected!r} where it has {found!r}" if found else "it ends in the middle: it was cut"
            )
        self._at += 1

    def value(self) -> Any:
        """Returns the next value, whole."""
        if not self.peek():
            raise ValueError("it ends in the middle: it was cut")
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                size = len(self._text) - self._at
                if size >= _LARGEST_VALUE:
                    raise ValueError(
                        f"not JSON, or a value of more than {_LARGEST_VALUE >> 20} million characters"
                    ) from None
                if not self._more(max(_CHUNK, size)):
                    raise ValueError(f"not JSON, or cut: {error.msg}") from None
                continue
            if end == len(self._text) and self._more():
                continue  # a number may continue in the next piece
            self._at = end
            return value

    def items(self, *, opened: bool = False) -> Iterator[None]:
        """Yields before each element of an array that begins here; the caller reads the element.

        Args:
            opened: Whether the opening bracket has been consumed.
        """
        if not opened:
            self.take("[")
        if self.peek() == "]":
            self._at += 1
            return
        while True:
            self._budget.spend(_ELEMENT)
            yield
            if self.peek() == "]":
                self._at += 1
                return
            self.take(",")

    def keys(self) -> Iterator[str]:
        """Yields each key of an object that begins here; the caller reads the value."""
        self.take("{")
        if self.peek() == "}":
            self._at += 1
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise ValueError("an object with a key that is not a text")
            self.take(":")
            yield key
            if self.peek() == "}":
                self._at += 1
                return
            self.take(",")

    def finish(self) -> None:
        """Checks that nothing follows."""
        if self.peek():
            raise ValueError("more text follows the end of the JSON")
