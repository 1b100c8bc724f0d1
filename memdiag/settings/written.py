"""Reads settings as a person wrote them: extracts variables from shell lines, and splits text into keys and values.

The allocator sees only the text after shell processing. This module also reports the effect of the shell: an unquoted
space ends the text, and an unquoted ``>`` redirects output to a file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memdiag.settings.model import BACKENDS
from memdiag.settings.tables import every

_ASSIGNMENT = re.compile(
    r"""(?<![A-Za-z0-9_])([A-Z][A-Z0-9_]{3,})      # the name
        (?:["']\s*\]?)?                             # os.environ["NAME"], "NAME" in JSON
        \s*(?:=|:(?=\s)|,(?=\s*["']))\s*            # NAME=, NAME: (YAML), setenv("NAME", "…")
        ("(?:[^"\\]|\\.)*"|'[^']*'|[^\s;&|"']*)     # the value
    """,
    re.VERBOSE,
)
_LOOSE = re.compile(r"[ \t]+((?:[a-z][a-z0-9_]+[ \t]*[:=][^;&|]*))")  # looks like settings after an unquoted space
_NEXT_KEY = re.compile(r"\s+(?=[A-Za-z_][A-Za-z0-9_]*\s*[:=])")
_NAMES = re.compile(r"ALLOC_CONF$")


@dataclass(frozen=True, slots=True)
class Assignment:
    """A variable and its value.

    Attributes:
        variable: Its name, or "" if only the value was given.
        value: The value that the program receives, if nothing is ``lost``.
        lost: End of the value that the shell would remove because it follows an unquoted space or ``>``.
    """

    variable: str
    value: str
    lost: str = ""


@dataclass(frozen=True, slots=True)
class WrittenKey:
    """One key with its value, as intended by a person.

    Attributes:
        key: The key, or "" if there is none.
        value: Its value without spaces, or None if there is none.
        oddity: Problem with the punctuation around it ("semicolon", "space", "comma", "equals"), or "" if there is
            none.
    """

    key: str
    value: str | None
    oddity: str = ""

    @property
    def text(self) -> str:
        """Key and value as they should be written."""
        return self.key if self.value is None else f"{self.key}:{self.value}"


def assignments(text: str) -> list[Assignment]:
    """Returns the variables that ``text`` sets, or the text itself.

    Forms are ``export A=x``, ``A=x B=y python …`` and ``os.environ["A"] = "x"``.
    """
    found = []
    for match in _ASSIGNMENT.finditer(text):
        name, raw = match.group(1), match.group(2)
        if raw[:1] in {'"', "'"}:
            found.append(Assignment(name, raw[1:-1]))
            continue
        lost = ""
        if _NAMES.search(name):
            after = _LOOSE.match(text, match.end())
            lost = after.group(1).strip() if after else ""
            if ">" in raw or "<" in raw:
                cut = re.split("[<>]", raw, maxsplit=1)[0]
                lost = raw[len(cut) :] + (f" {lost}" if lost else "")
                raw = cut
        found.append(Assignment(name, raw, lost))
    if found:
        beside = _beside(_ASSIGNMENT.sub(" ", text), "".join(each.lost for each in found))
        return [*found, Assignment("", beside)] if beside else found
    bare = text.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "'\"":
        bare = bare[1:-1]
    return [Assignment("", bare)]


def _beside(text: str, lost: str) -> str:
    """Returns settings outside any variable: words that begin with a key of any backend."""
    keys = {key for backend in BACKENDS for key in every(backend)}
    words = [
        word
        for word in text.split()
        if re.split("[:=]", word, maxsplit=1)[0] in keys and ":" in word and word not in lost
    ]
    return ",".join(words)


def entries(text: str) -> list[WrittenKey]:
    """Returns the keys and values of ``text`` in order, with any separators."""
    found = []
    for chunk, ended_by in _chunks(text):
        oddity = "semicolon" if ended_by == ";" else "space" if ended_by == " " else ""
        compact = re.sub(r"\s+", "", chunk)
        if not compact:
            found.append(WrittenKey("", None, "comma" if ended_by == "," else oddity))
            continue
        sign = next((char for char in compact if char in ":="), "")
        key, _, value = compact.partition(sign) if sign else (compact, "", "")
        if sign == "=":
            oddity = "equals"
        found.append(WrittenKey(key, value if sign else None, oddity))
    if found and not found[-1].key and not found[-1].oddity:  # the text is empty, or ends with a comma
        found.pop()
    return found


def _chunks(text: str) -> list[tuple[str, str]]:
    """Yields the parts of ``text`` with the separator that ends each; separators in brackets do not count."""
    pieces, start, depth, i = [], 0, 0, 0
    while i < len(text):
        char = text[i]
        depth += (char == "[") - (char == "]")
        depth = max(depth, 0)
        space = _NEXT_KEY.match(text, i) if depth == 0 and char.isspace() else None
        if depth == 0 and char in ",;":
            pieces.append((text[start:i], char))
            start = i + 1
        elif space and text[start:i].strip() and not re.search(r"[:=]\s*$", text[start:i]):
            pieces.append((text[start:i], " "))
            start = space.end()
            i = start - 1
        i += 1
    pieces.append((text[start:], ""))
    return pieces


def guess_by_keys(text: str) -> str:
    """Returns "npu" if ``text`` has keys that only torch_npu supports, else "cuda"."""
    names = {entry.key for entry in entries(text)}
    ours, theirs = (set(every(backend)) for backend in ("npu", "cuda"))
    return "npu" if names & (ours - theirs) and not names & (theirs - ours) else "cuda"
