r"""The text that dialects read: a few lines without any white space, so wrapping and missing spaces do not matter.

Terminals wrap inside words and numbers ("4\n0.30 GiB"), people wrap by hand, chats eat newlines. Without white space
all of these are the same text. Patterns are written with spaces for readability; ``pattern`` removes them too.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from memdiag.oom.lines import Line
from memdiag.oom.model import Fields
from memdiag.units import KIB

# Full-width punctuation of Chinese keyboards, typographic quotes; and zero-width characters, which are removed.
_PUNCTUATION = str.maketrans(
    "\uff0c\u3002\uff1b\uff1a\uff08\uff09\u3010\u3011\uff05\u201c\u201d\u2018\u2019\uff5c",
    ",.;:()[]%\"\"''|",
    "\u200b\u200c\u200d\u2060\ufeff\u00ad",
)

# Bounded, and never starting inside a number, so that a search through a megabyte of digits stays linear.
_NUMBER = r"\d{1,3}(?:,\d{3}){1,8}(?:\.\d{1,9})?|\d{1,24}[.,]\d{0,24}|\d{1,24}"
_KINDS = {
    "size": rf"(?<!\d)(?:{_NUMBER})(?:[KMGTPE][il1|]?B|bytes?|B|[KMGT])",
    "bytes": r"(?<!\d)(?:\d{1,3}(?:,\d{3}){1,8}(?!\d)|\d{1,24})",
    "int": r"\d{1,24}",
    "float": r"\d{1,24}(?:\.\d{1,24})?",
    "word": r"[A-Za-z_][A-Za-z_0-9]{0,99}",
    "shape": r"[\[(][\d,]{0,200}[\])]",
}
_SLOT = re.compile(r"\{([a-z][a-z_]*):([a-z]+)\}")
# Letters in the words of a regular expression, after everything that is not a word: escapes, sets, counts, slots, heads
# of groups.
_LETTERS = re.compile(r"\\.|\[[^\]]*\]|\{[^}]*\}|\(\?P<\w+>|\(\?<?[=!:]|([LI1])|([O0])", re.IGNORECASE)
_SIZE = re.compile(rf"({_NUMBER})([A-Za-z|1]*)")
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
# Lines of a program that contain a message text but are not messages: 'if "out of memory" in str(error):', "throw
# std::bad_alloc();", and results of a search through sources and documents ("./README.md:44:RuntimeError: …").
_CODE = re.compile(
    r"\s*(?:\d{1,6}\s*:?\s+|-+>\s*\d{1,6}\s+)?"
    r"(?:#\s?define\s|(?:\}\s?)?catch\s?\(|throw\s|[\w.>-]{1,60} = (?=[A-Za-z_:]{1,80};?$)"
    r"|(?:(?:if|elif|while|assert|raise|except|return|case|def|class)\b"
    r"|(?:with )?pytest\.raises\(|(?:with )?self\.assert\w{0,40}\("
    r"|print\(|printf\(|log(?:ger|ging)?\.\w{1,20}\(|warnings\.warn\(|[\w.]{1,60} = )[^\"'`]{0,200}[\"'`]"
    r"|[\w./-]{1,200}\.(?:md|rst|adoc|html|ipynb|pyi?)[:-]\d{1,6}[:-](?:\s\s|(?!\s)))"
)
_LARGEST_INDEX = 1023  # of a device: larger numbers are the year of the next line's date
_ABSURD = 1 << 60  # -1 printed as unsigned ("17179869184.00 GiB"): the number is unknown


def pattern(text: str) -> re.Pattern[str]:
    """Compiles a regular expression for squeezed text: spaces in it are ignored, and letters match in either case.

    ``{requested:size}`` is a slot: a group for a number with a unit. Kinds of slots: ``size`` ("1.50 GiB", "180 bytes",
    "3.4G"), ``bytes`` (a whole number of bytes, no unit), ``int``, ``float``, ``word``, ``shape`` ("[16, 3]"). ``take``
    reads them.
    """

    def slot(match: re.Match[str]) -> str:
        return f"(?P<{match[1]}__{match[2]}>{_KINDS[match[2]]})"

    return re.compile(_SLOT.sub(slot, re.sub(r"\s+", "", text)), re.IGNORECASE)


def blurred(text: str) -> str:
    """Returns a regular expression that also matches look-alike letters of photographed text: l, I, 1 and |; O and 0.

    This applies only to letters in its words: slots read the printed text, so letters never become numbers.
    """

    def letter(match: re.Match[str]) -> str:
        return "[li1|]" if match[1] else "[o0]" if match[2] else match[0]

    return _LETTERS.sub(letter, text)


def take(match: re.Match[str]) -> Fields:
    """Returns the values in the slots of a match, without absurd ones: sizes as ``<name>_bytes``, others by name."""
    fields: Fields = {}
    for group, text in match.groupdict().items():
        name, _, kind = group.partition("__")
        if text is None or not kind:
            continue
        if kind in {"size", "bytes"}:
            value = size_of(text)
            if value < _ABSURD:
                fields[f"{name}_bytes"] = value
        elif kind == "int":
            if name != "device_index" or int(text[:18]) <= _LARGEST_INDEX:
                fields[name] = int(text[:18])
        elif kind == "float":
            fields[name] = float(text)
        elif kind == "shape":
            fields[name] = [int(number) for number in re.findall(r"\d{1,18}", text)]
        else:
            fields[name] = text
    return fields


def size_of(text: str) -> int:
    """Returns the bytes of "1.50GiB", "24", "3,635,267,072 bytes" or "1900,00MiB".

    Units are powers of 1024 in any spelling.
    """
    match = _SIZE.match("".join(text.split()))
    if match is None:
        return 0
    number, unit = match.groups()
    if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", number):
        number = number.replace(",", "")
    power = _POWERS.get(unit[:1].lower(), 0)
    factor: int = KIB**power
    return round(float(number.replace(",", ".")) * factor)


def squeeze(text: str) -> str:
    """Returns ``text`` without white space and with plain punctuation."""
    return "".join((text if text.isascii() else text.translate(_PUNCTUATION)).split())


def is_code(line: str) -> bool:
    """Returns whether a line looks like source code, or like a search result from sources and documents."""
    return _CODE.match(line) is not None


class Squeezed:
    """Some lines as one text without white space.

    Attributes:
        text: That text, in its original case.
        lines: The lines it came from.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = tuple(lines)
        pieces = [squeeze(line.text) for line in self.lines]
        self.text = "".join(pieces)
        self._ends = list(accumulate(len(piece) for piece in pieces))

    def line_index(self, position: int) -> int:
        """Returns the index of the line that contains a position of the text."""
        return min(bisect_right(self._ends, position), len(self.lines) - 1)

    def pieces(self, indices: Iterable[int]) -> str:
        """Returns some of the lines as one text."""
        return "".join(self.text[self._ends[index - 1] if index else 0 : self._ends[index]] for index in indices)

    def line_at(self, position: int) -> Line:
        """Returns the line that contains a position of the text."""
        return self.lines[self.line_index(position)]

    def original(self, start: int, end: int) -> str:
        """Returns the original lines between two positions, without logger prefixes."""
        first, last = self.line_index(start), self.line_index(max(end - 1, start))
        return "\n".join(line.text for line in self.lines[first : last + 1])

    def line_span(self, position: int) -> tuple[int, int]:
        """Returns start and end, in the squeezed text, of the line that contains a position."""
        index = self.line_index(position)
        return (self._ends[index - 1] if index else 0), self._ends[index]

    def is_code(self, position: int) -> bool:
        """Returns whether a position is in a string of a program.

        Source code names messages, to raise or to catch them.
        """
        line = self.line_at(position).text
        code = _CODE.match(line)
        return code is not None and len(squeeze(line[: code.end()])) <= position - self.line_span(position)[0]
