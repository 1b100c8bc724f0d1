"""Finds where in a chunk of a log a message can be: words of failures, close to an anchor of a dialect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

# A message inside a long text is found by one of these words, or of the WORDS of a dialect, close to one of its
# anchors.
WORDS = ("memory", "alloc", "kill")
# These count as anchors only near such a word: codes and signals without their digits are too unspecific.
CLUES = (
    "failedtoallocate",
    "memory_allocation_failure",
    "insufficient_device_memory",
    "insufficientmemory",
    "max_model_len",
)

REACH = 80  # characters around a word in which its anchor must be

# Ignored characters: quotation marks, and what wrapping inserts; when logs are searched also digits, which vary.
LOWER = bytes(range(256)).lower()
DROPPED = b" \t\r\n\v\f\0>#\"'`*|"
DROPPED_IN_LINE = DROPPED.replace(b"\n", b"")
DROPPED_IN_SHAPE = DROPPED_IN_LINE + b"0123456789"
DROPPED_IN_WORDS = DROPPED_IN_SHAPE + b"\n"
_NO_BREAK = "\u00a0".encode()
_ENTITY = re.compile(rb"&(?:amp;){0,4}(?:#x?|quot|apos|nbsp|lt|gt);")
# With these, a number decides: codes and signals.
_COUNTING = (b"exit", b"kill", b"signal", b"errno", b"errorcode", b"returned")
# Signs of a failure that ordinary lines about memory do not have: searched first around a word, since there are fewer.
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
    b"goneover",
)


class Gate:
    """Finds the places in a chunk of text where a message can be.

    Args:
        anchors: Texts of which each message has one, in lower case without spaces.
        words: Words of which each message inside a long text has one.
        clues: Anchors that count only near words.
    """

    def __init__(self, anchors: Iterable[str], words: Sequence[str], clues: Sequence[str] = ()) -> None:
        # Bytes beyond ASCII have no lower case, so words of other alphabets are also searched with a capital letter.
        spellings = {plain(spelled.encode()) for anchor in anchors for spelled in (anchor, anchor.capitalize())}
        # An anchor that contains another one adds nothing. Few anchors are contained in others; the joined text has
        # those twice.
        text = b"\n".join(spellings)
        inner = [anchor for anchor in spellings if text.count(anchor) > 1]
        self.anchors = sorted(
            anchor for anchor in spellings if not any(other in anchor for other in inner if other != anchor)
        )
        # Anchors need at least four letters ("el0004" and "207001" do not count): their messages have others.
        bare = {_bare(anchor) for anchor in self.anchors} | {_bare(clue.encode()) for clue in clues}
        self._without_digits = sorted(anchor for anchor in bare if len(anchor) >= 4)
        self._counting = tuple(
            sorted({_bare(anchor) for anchor in self.anchors if _bare(anchor) != anchor and len(_bare(anchor)) >= 4})
        )
        self.words = sorted({_bare(word.encode()) for word in words if word.isascii()})
        self.other_words = [word.encode() for word in words if not word.isascii()]

    def anchored(self, text: bytes) -> list[int]:
        """Returns the positions of anchors in plain text."""
        return [place for anchor in self.anchors for place in _places(text, anchor)]

    def worded(self, text: bytes) -> list[int]:
        """Returns the positions of words with an anchor nearby, in text without digits, spaces and capital letters."""
        places = [place for word in self.words for place in _places(text, word) if self._confirmed(text, place)]
        if not text.isascii():
            places += [place for word in self.other_words for place in _places(text, word)]
        return places

    def is_counting(self, shape: bytes) -> bool:
        """Returns whether the digits removed from a line may decide whether it is a message."""
        return any(word in shape for word in _COUNTING) or any(anchor in shape for anchor in self._counting)

    def _confirmed(self, text: bytes, place: int) -> bool:
        around = text[max(0, place - REACH) : place + REACH]
        if b"&" in around or _NO_BREAK in around:
            around = _ENTITY.sub(b"", around).replace(_NO_BREAK, b"")
        return any(sign in around for sign in _SIGNS) and any(anchor in around for anchor in self._without_digits)


def _bare(text: bytes) -> bytes:
    return text.translate(LOWER, DROPPED_IN_WORDS)


def plain(text: bytes) -> bytes:
    """Returns text in lower case without spaces and quotation marks, the form in which anchors are searched."""
    return text.translate(LOWER, DROPPED)


def _places(text: bytes, word: bytes) -> Iterator[int]:
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + len(word))
