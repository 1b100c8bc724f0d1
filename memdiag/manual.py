"""The documentation as installed: the pages of ``docs`` by name, those of findings by code.

The wheel contains them as ``memdiag/docs``. In a checkout they are read from the repository.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from textwrap import dedent

from memdiag.errors import MemdiagError
from memdiag.text import language, phrase

_HERE = Path(__file__).parent
_PLACES = (_HERE / "docs", _HERE.parent / "docs")
_FINDINGS, _GUIDES = "findings", "how-to"
_INDEX = "README"
# The Chinese title and summary, below the title of a finding: <!-- zh: title\u3002summary -->
_CHINESE = re.compile("^<!-- zh: (?P<title>[^\u3002]+)\u3002(?P<summary>.+) -->\n", re.MULTILINE)
_SECTIONS = {
    "What it means": "means",
    "Why it matters": "matters",
    "How to fix it": "fix",
    "When not to": "exceptions",
    "What it limits": "limits",
    "What to do": "do",
}
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")
_COMMENT = re.compile(r"<!-- .* -->")  # which lines of an output a page shows


@dataclass(frozen=True, slots=True)
class ManualPage:
    """One page.

    Attributes:
        name: ``MD201`` for a finding, ``conf`` for docs/conf.md, ``share`` for docs/how-to/share.md.
        title: The heading, without markup and without the code.
        text: Markdown.
    """

    name: str
    title: str
    text: str

    @property
    def is_finding(self) -> bool:
        """True if the page explains a finding or a note."""
        return self.name.startswith("MD")


@dataclass(frozen=True, slots=True)
class ManualBlock:
    """A part of a page, with links replaced by their text.

    Attributes:
        kind: "heading", "paragraph", "item" (of a list), "code" or "table".
        text: Its text; code and tables keep their lines.
    """

    kind: str
    text: str


@cache
def names() -> tuple[str, ...]:
    """Returns the names of all pages, finding codes first.

    Raises:
        MemdiagError: This installation has no pages.
    """
    folder = next((place for place in _PLACES if (place / _FINDINGS).is_dir()), None)
    if folder is None:
        raise MemdiagError(
            phrase("errors.no-docs"),
            phrase("errors.no-docs.hint"),
        )
    codes = sorted(path.stem for path in (folder / _FINDINGS).glob("MD*.md"))
    others = (*folder.glob("*.md"), *(folder / _GUIDES).glob("*.md"))
    return (*codes, *sorted(path.stem for path in others if path.stem != _INDEX))


def page(name: str) -> ManualPage:
    """Returns a page; case is ignored, and the digits of a code are enough.

    Raises:
        MemdiagError: There is no such page.
    """
    known = {each.lower(): each for each in names()}
    wanted = name.strip().lower().removesuffix(".md")
    found = known.get(wanted) or known.get(f"md{wanted}")
    if found is None:
        close = get_close_matches(wanted, known, 3, 0.5)
        meant = phrase("errors.meant", name=" or ".join(known[each] for each in close)) if close else ""
        raise MemdiagError(phrase("errors.page", name=str(name)), phrase("errors.page.hint", meant=meant))
    folder = next(each for each in _PLACES if (each / _FINDINGS).is_dir())
    places = (folder / each / f"{found}.md" for each in (_FINDINGS, _GUIDES, ""))
    text = next(place for place in places if place.is_file()).read_text(encoding="utf-8")
    chinese, text = _CHINESE.search(text), _CHINESE.sub("", text)
    if chinese and language() == "zh":
        text = _with_chinese_summary(found, text, chinese["title"], chinese["summary"])
    head = _unlinked(text.splitlines()[0].removeprefix("# "))
    return ManualPage(found, head.removeprefix(f"{found}: "), text)


def _with_chinese_summary(code: str, text: str, title: str, summary: str) -> str:
    """Returns a page with its title, summary and headings in Chinese, and its English text below."""
    _, first, body = text.partition("\n## ")
    lines = (
        f"## {phrase(f'explain.section.{_SECTIONS[heading]}')}"
        if line.startswith("## ") and (heading := line.removeprefix("## ")) in _SECTIONS
        else line
        for line in f"{first.lstrip()}{body}".splitlines()
    )
    return "\n".join([f"# {code}: {title}", "", summary, "", phrase("explain.english"), "", *lines])


def find(name: str) -> ManualPage | None:
    """Returns a page, or None if it does not exist or this installation has no pages."""
    try:
        return page(name)
    except MemdiagError:
        return None


def blocks(text: str) -> tuple[ManualBlock, ...]:
    """Returns the parts of a page after its title, in order."""
    found: list[ManualBlock] = []
    lines: list[str] = []
    kind, is_fenced, after_gap = "paragraph", False, True

    def end() -> None:
        if lines:
            text = (
                dedent("\n".join(lines))
                if kind in {"code", "table"}
                else _unlinked(" ".join(line.strip() for line in lines))
            )
            found.append(ManualBlock(kind, text.rstrip()))
            lines.clear()

    for line in text.splitlines()[1:]:
        if not is_fenced and _COMMENT.fullmatch(line):
            continue
        begins = "" if is_fenced else _begins(line, after_gap=after_gap)
        if line.lstrip().startswith("```"):
            end()
            is_fenced, kind = not is_fenced, "paragraph" if is_fenced else "code"
        elif begins == "heading":
            end()
            found.append(ManualBlock(begins, _unlinked(line.lstrip("# "))))
        elif not is_fenced and not line.strip():
            end()
            kind = "paragraph"
        else:
            if (begins and begins != kind) or begins == "item":
                end()
                kind = begins
            lines.append(_unlinked(line) if kind == "table" else line)
        after_gap = not line.strip()
    end()
    return tuple(
        ManualBlock(block.kind, re.sub(r"\n[|:\- ]+(?=\n|$)", "", block.text)) if block.kind == "table" else block
        for block in found
    )


def _begins(line: str, *, after_gap: bool) -> str:
    """Returns the kind of block that a line begins, or "" if it may continue the previous block."""
    if line.startswith("#"):
        return "heading"
    if line.startswith("|"):
        return "table"
    if after_gap and line.startswith("    "):
        return "code"
    return "item" if _ITEM.match(line.lstrip()) and not line.startswith("    ") else ""


def _unlinked(text: str) -> str:
    return _LINK.sub(r"\1", text)
