"""Where in a chunk of a log a message can be: words that failures have, with an anchor of a dialect around them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

REACH = 80  # characters around a word in which its anchor must be

# Nothing that people quote with or that wrapping puts in between; where logs are searched no digits either, which
# differ all the time.
LOWER = bytes(range(256)).lower()
DROPPED = b" \t\r\n\v\f\0>#\"'`*|"
DROPPED_IN_LINE = DROPPED.replace(b"\n", b"")
DROPPED_IN_SHAPE = DROPPED_IN_LINE + b"0123456789"
DROPPED_IN_WORDS = DROPPED_IN_SHAPE + b"\n"
_NO_BREAK = "\u00a0".encode()
_ENTITY = re.compile(rb"&(?:amp;){0,4}(?:#x?|quot|apos|nbsp|lt|gt);")
# Beside these a number decides: codes and signals.
_COUNTING = (b"exit", b"kill", b"signal", b"errno", b"errorcode", b"returned")
# What a failure says and the many lines that just tell of memory do not: looked for first around a word, since it is
# less.
_SIGNS = (
    b"fail",
    b"outof",
    b"error",
    b"exce",
    b"not",
    b"able",
    b"tried",
    b"trying",
    b"already",
    b"kill",
    b"invalid",
    b"exit",
    b"reserve",
    b"exhaust",
    b"insufficient",
    b"available",
    b"morethan",
    b"lessthan",
    b"larger",
    b"creasing",
    b"algorithm",
    b"beyond",
    b"sigterm",
)


class Gate:
    """Tells where in a chunk of text a message can be.

    Args:
        anchors: Texts of which each message has one: lower case, no blanks.
        words: Words of which each message that stands in the middle of a long text has one.
        clues: Anchors that count around words only.
    """

    def __init__(self, anchors: Iterable[str], words: Sequence[str], clues: Sequence[str] = ()) -> None:
        # Bytes beyond ASCII have no lower case: words of other alphabets are looked for as they begin sentences, too.
        spellings = {plain(spelled.encode()) for anchor in anchors for spelled in (anchor, anchor.capitalize())}
        # An anchor with another one inside says nothing more than that one does. Few are inside of others: the text of
        # all has them twice.
        text = b"\n".join(spellings)
        inner = [anchor for anchor in spellings if text.count(anchor) > 1]
        self.anchors = sorted(
            anchor for anchor in spellings if not any(other in anchor for other in inner if other != anchor)
        )
        # Less than four letters are no anchor ("el0004", "207001"): their messages hold others.
        bare = {_bare(anchor) for anchor in self.anchors} | {_bare(clue.encode()) for clue in clues}
        self._without_digits = sorted(anchor for anchor in bare if len(anchor) >= 4)
        self._counting = tuple(
            sorted({_bare(anchor) for anchor in self.anchors if _bare(anchor) != anchor and len(_bare(anchor)) >= 4})
        )
        self.words = sorted({_bare(word.encode()) for word in words if word.isascii()})
        self.other_words = [word.encode() for word in words if not word.isascii()]

    def anchored(self, text: bytes) -> list[int]:
        """Returns where anchors stand in plain text."""
        return [place for anchor in self.anchors for place in _places(text, anchor)]

    def worded(self, text: bytes) -> list[int]:
        """Returns where words stand in text without digits, blanks and capital letters that have an anchor around them."""
        places = [place for word in self.words for place in _places(text, word) if self._confirmed(text, place)]
        if not text.isascii():
            places += [place for word in self.other_words for place in _places(text, word)]
        return places

    def is_counting(self, shape: bytes) -> bool:
        """Returns whether the digits that a line has lost may decide whether it is a message."""
        return any(word in shape for word in _COUNTING) or any(anchor in shape for anchor in self._counting)

    def _confirmed(self, text: bytes, place: int) -> bool:
        around = text[max(0, place - REACH) : place + REACH]
        if b"&" in around or _NO_BREAK in around:
            around = _ENTITY.sub(b"", around).replace(_NO_BREAK, b"")
        return any(sign in around for sign in _SIGNS) and any(anchor in around for anchor in self._without_digits)


def _bare(text: bytes) -> bytes:
    return text.translate(LOWER, DROPPED_IN_WORDS)


def plain(text: bytes) -> bytes:
    """Returns text in lower case without blanks and quotation marks, as anchors are searched in it."""
    return text.translate(LOWER, DROPPED)


def _places(text: bytes, word: bytes) -> Iterator[int]:
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + len(word))
