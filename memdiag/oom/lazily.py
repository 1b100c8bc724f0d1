"""Regular expressions that are compiled on first use.

Compiling all expressions for programs and stages takes longer than reading a message. Most messages contain none of
their words.
"""

from __future__ import annotations

import re
from functools import cache


class Words:
    """A regular expression with words: every match contains one of them.

    A text without these words is not searched, so the expression is compiled only for texts that may match.
    """

    __slots__ = ("expression", "flags", "words")

    def __init__(self, expression: str, words: tuple[str, ...], flags: int = 0) -> None:
        """Stores an expression; ``words`` are in lower case, like the texts to search unless ``flags`` ignores case."""
        self.expression, self.words, self.flags = expression, words, flags

    def search(self, text: str) -> re.Match[str] | None:
        """Returns the first match of the expression in ``text``."""
        lowered = text.lower() if self.flags & re.IGNORECASE else text
        if not any(word in lowered for word in self.words):
            return None
        return _compiled(self.expression, self.flags).search(text)


@cache
def _compiled(expression: str, flags: int) -> re.Pattern[str]:
    return re.compile(expression, flags)
