"""Self-contained web pages: no network, no script, no other file.

``compare`` and ``fleet`` write them with ``--html``.

Text becomes markup only in ``tag``, where it is escaped, so text from a trace is never interpreted as markup.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import NamedTuple

from memdiag.text import language, plain
from memdiag.version import __version__

_REPORT = files("memdiag.render.analyze.html") / "assets"
_SHARED = ("00_base.css", "10_page.css", "90_print.css")  # of the HTML report, for the same look
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_VOID = frozenset({"meta", "rect", "line", "polyline", "polygon", "circle"})
_LONGEST = 2000


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


class Section(NamedTuple):
    """A part of a page.

    Attributes:
        name: Its anchor.
        title: Its heading, also used in the line of links.
        parts: Its content.
    """

    name: str
    title: str
    parts: Sequence[Markup]


def tag(_name: str, *children: object, **attributes: object) -> Markup:
    """Returns an element.

    Args:
        _name: Name in HTML or SVG.
        children: Markup is inserted unchanged. All other values are text, which is escaped; control characters become
            visible.
        attributes: ``class_`` for a reserved word, ``stroke_width`` for ``stroke-width``; None omits one.
    """
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(plain(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if _name in _VOID and not children:
        return Markup(f"<{_name}{attribute_text}/>")
    return Markup(f"<{_name}{attribute_text}>{together(children)}</{_name}>")


def together(parts: Iterable[object]) -> Markup:
    """Concatenates parts; texts among them are escaped."""
    return Markup(
        "".join(part if isinstance(part, Markup) else html.escape(plain(str(part), _LONGEST)) for part in parts)
    )


def table(head: Sequence[object], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()) -> Markup:
    """Returns a table; the columns ``numbers`` are aligned to the right."""
    right = frozenset(numbers)

    def line(cells: Sequence[object], kind: str) -> Markup:
        return tag("tr", *(tag(kind, cell, class_="num" if at in right else None) for at, cell in enumerate(cells)))

    body = tag("tbody", *(line(row, "td") for row in rows))
    return tag("div", tag("table", tag("thead", line(head, "th")), body, class_="grid"), class_="scroll-x")


def swatch(color: str) -> Markup:
    """Returns a small square in a colour, as in a legend."""
    return tag("span", class_="swatch", style=f"background:{color}")


def stacked(parts: Sequence[tuple[str, str, int]], whole: int) -> Markup:
    """Returns a bar of parts (title, colour, amount), whose full width represents ``whole``."""
    shown = [
        tag("span", style=f"background:{color};width:{100 * amount / max(whole, 1):.3f}%", title=title)
        for title, color, amount in parts
        if amount > 0
    ]
    return tag("div", *shown, class_="stack")


def tile(label: str, value: str, more: str = "", kind: str = "") -> Markup:
    """Returns a number with its name; ``kind`` is ``bad``, ``warn`` or ""."""
    parts = [tag("div", label, class_="tile-label"), tag("div", value, class_="tile-value")]
    return tag("div", *parts, *([tag("div", more, class_="tile-more")] if more else []), class_=f"tile {kind}".strip())


def page(title: str, headline: Sequence[Markup], sections: Sequence[Section]) -> str:
    """Returns a page.

    Args:
        title: Its subject, after "memdiag" in its head and in the window title.
        headline: The first part.
        sections: The others, in order.
    """
    style = "\n".join((_REPORT / name).read_text(encoding="utf-8") for name in _SHARED)
    style += (files(__name__) / "page.css").read_text(encoding="utf-8")
    links = [tag("a", section.title, href=f"#{section.name}") for section in sections]
    cards = [
        tag("section", tag("h2", section.title), *section.parts, id=section.name, class_="card", tabindex="-1")
        for section in sections
    ]
    head = together(
        [
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", f"memdiag {title}"),
            Markup(f"<style>\n{style}\n</style>"),
        ]
    )
    top = tag(
        "header",
        tag("div", tag("strong", "memdiag", class_="brand-name"), tag("span", title, class_="file"), class_="top-row"),
        tag("nav", *links, class_="sections", aria_label="sections"),
        class_="top",
    )
    main = tag("main", tag("section", *headline, class_="summary", id="summary"), *cards)
    body = tag("body", top, main, tag("footer", f"memdiag {__version__}"))
    return (
        "<!DOCTYPE html>\n"
        f"{tag('html', tag('head', head), body, lang='zh-CN' if language() == 'zh' else 'en', data_theme='auto')}\n"
    )
