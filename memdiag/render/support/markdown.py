"""GitHub-flavoured markdown: tables, code, and text from files that must not act as markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from memdiag.text import plain

_SPECIAL = re.compile(r"([\\`*_\[\]<#|~$&])")
_PING = re.compile(r"@(?=\w)|(?<=\\#)(?=\d)")
WIDTH = 78  # the width of an issue's code block without scrolling


def escape(text: object) -> str:
    """Returns ``text`` escaped for markdown; mentions and references to issues are broken up."""
    return _PING.sub(lambda found: found.group() + "<!-- -->", _SPECIAL.sub(r"\\\1", plain(text)))


def code(text: object) -> str:
    """Returns ``text`` as a code span, or "" for an empty text."""
    shown = plain(text)
    if not shown.strip():
        return ""
    ticks = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"


def cell(text: object) -> str:
    """Returns ``text`` as a code span for a table.

    With a backslash and a pipe in it, it is escaped text, since a table would split there.
    """
    shown = plain(text)
    return escape(shown) if "|" in shown and "\\" in shown else code(shown).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Returns a table and an empty line; columns in ``right`` are aligned to the right."""
    rule = ["---:" if i in right else "---" for i in range(len(head))]
    return ["| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)] + [""]


def fence(lines: Sequence[str], language: str = "") -> list[str]:
    """Returns a code block, with a fence longer than any run of backticks in it."""
    longest = max((len(run) for line in lines for run in re.findall("`{3,}", line)), default=2)
    fence = "`" * (longest + 1)
    return [fence + language, *lines, fence]
