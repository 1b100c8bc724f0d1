"""Detects messages that are quoted instead of printed by a failure: in source code, tests and documentation.

Text with sizes counts as a failure even inside a sentence ("I get `CUDA out of memory. Tried to allocate 2 GiB`"). Only
for messages without any field is the surrounding sentence examined. Strings of a program never count.
"""

from __future__ import annotations

import re

from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed

_REACH = 160  # squeezed characters of the sentence to examine after a message
_SENTENCE = 200  # characters to examine before it

# Before a message, on its line, with spaces: advice, conditions, expectations of tests.
_BEFORE = re.compile(
    r"(?:^|[.!?;>]\s?|^[-*#\d.\s]{1,8})(?:if|when|whenever|in case|should you)\b[^.!?]{0,120}$"
    r"|\b(?:if|when|whenever)\s(?:you|there|it|this|that|we)\b[^.!?]{0,100}$"
    r"|\b(?:avoid|fix|prevent|solve|resolve|handle|troubleshoot|test|check|assert|simulate|mock|expect)"
    r"(?:e?s|ing|ed)?\s"
    r"(?:that |for |the |an? |any )?[`'\"]{0,3}(?:[\w.]{0,60}Error:? ?)?[`'\"]{0,3}$",
    re.IGNORECASE,
)
# After it: explanations and assertions.
_BEHIND = re.compile(
    r"[`'\").,:;]{0,4}(?:errors?|exceptions?|messages?|status)?(?:means?(?![a-z]*time)|isthrown|israised|isreturned"
    r"|issent|isset|isshown"
    r"|(?:usually|typically|often|generally|normally)|indicates|refersto|standsfor|occurs(?:when|if)|happens(?:when|if)"
    r"|canbe|maybe|shouldbe|mustbe"
    r"|not(?:found)?in|isin|in(?:str|repr)\(|won'?tappear|forthefirsttime)",
    re.IGNORECASE,
)


def is_mention(text: Squeezed, found: Found) -> bool:
    """Returns whether ``found`` is in a string of a program, or prints no field and is discussed in a sentence."""
    return text.is_code(found.start) if found.fields else is_talk(text, found.start, found.end)


def is_talk(text: Squeezed, start: int, end: int) -> bool:
    """Returns whether the text between two positions is in a string of a program, or is discussed in a sentence."""
    if text.is_code(start):
        return True
    _, line_end = text.line_span(max(end - 1, start))
    behind = text.text[end : min(line_end, end + _REACH)]
    return bool(_BEFORE.search(_before(text, start)) or _BEHIND.match(behind))


def _before(text: Squeezed, position: int) -> str:
    """Returns the text before a position on its line, including spaces."""
    line = text.line_at(position).text
    left = position - text.line_span(position)[0]
    for index, character in enumerate(line):
        if left <= 0:
            return line[max(index - _SENTENCE, 0) : index]
        left -= not character.isspace()
    return line[-_SENTENCE:]
