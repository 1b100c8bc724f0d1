"""A comparison of traces as a web page.

It has verdicts, curves, the split of memory to one scale, and call sites that grew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memdiag import vocabulary
from memdiag.render.compare import rows
from memdiag.render.compare.curves import how_aligned
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.pages import Markup, Section, page, stacked, swatch, table, tag, tile, together
from memdiag.render.support.pages.plots import PlotLine, curves
from memdiag.text import phrase
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from memdiag.results.compare import Comparison, Curves, NameRow, Side, SiteRow

_MOST_ROWS = 500  # of a list, including folded rows
_MOST_TICKS = 12
_FATES = {"new": "warning", "worse": "critical", "gone": "ok", "better": "ok"}


def render(report: Comparison, look: Look = PLAIN) -> str:  # noqa: ARG001 - a page looks the same everywhere
    """Returns the comparison as a page."""
    names = " · ".join(f"{side.letter} {side.path}" for side in report.sides)
    headline = [*(tag("h1", sentence) for sentence in report.verdicts), tag("div", *_tiles(report), class_="numbers")]
    return page(phrase("compare.page", names=names), headline, list(_sections(report)))


def _sections(report: Comparison) -> Iterator[Section]:
    yield Section("traces", phrase("compare.title.traces"), [_traces(report)])
    yield Section(
        "amounts", phrase("compare.title.amounts", when=rows.when(report)), [_split(report), _amounts(report)]
    )
    if report.is_same:
        return
    if report.curves is not None and (drawn := _curves(report, report.curves)):
        yield Section(
            "curves", phrase("compare.title.over"), [tag("p", how_aligned(report.curves), class_="lead"), *drawn]
        )
    if report.sites is not None:
        words = [rows.place_words(row) for row in report.sites[:_MOST_ROWS]]
        listed = _list(report, report.sites, words, phrase("compare.head.place"))
        yield Section("places", phrase("compare.title.places", when=rows.when(report)), [*listed, *_shared_end(report)])
    if report.names is not None:
        words = [row.name or phrase("offload.unnamed") for row in report.names[:_MOST_ROWS]]
        yield Section(
            "names",
            phrase("compare.title.names", when=rows.when(report)),
            _list(report, report.names, words, phrase("compare.head.name")),
        )
    if report.differences:
        head = ("", *(side.letter for side in report.sides))
        yield Section("settings", phrase("compare.title.settings"), [table(head, rows.difference_rows(report, 400))])
    if report.findings:
        yield Section("findings", phrase("compare.title.findings"), _findings(report))
    if report.notes:
        yield Section(
            "notes",
            phrase("compare.title.notes"),
            [tag("ul", *(tag("li", note) for note in report.notes), class_="notes")],
        )


def _color(number: int) -> str:
    return vocabulary.LINES[number % len(vocabulary.LINES)]


def _letter(side: Side, number: int) -> Markup:
    return together([swatch(_color(number)), tag("b", side.letter)])


def _tiles(report: Comparison) -> Iterator[Markup]:
    base = report.sides[0]
    for side in report.sides:
        differs = (
            ""
            if side is base
            else phrase("compare.against", change=rows.change(base.peak_bytes, side.peak_bytes), letter=base.letter)
        )
        what = vocabulary.name("curve", "reserved" if side.usage.reserved_bytes is not None else "allocated")
        yield tile(
            phrase("compare.tile", letter=side.letter, what=what),
            rows.size(side.peak_bytes),
            differs or rows.when(report),
        )


def _traces(report: Comparison) -> Markup:
    return table(
        ("", phrase("compare.head.file"), ""),
        [(_letter(side, at), tag("code", side.path), rows.side_words(side)) for at, side in enumerate(report.sides)],
    )


def _split(report: Comparison) -> Markup:
    """Returns the parts of reserved memory of each trace, all to one scale."""
    names = tuple(vocabulary.STYLES["part"])
    rows_of_sides = [
        (
            side,
            {
                name: side.usage.requested_bytes if name == "requested" else getattr(side.split, f"{name}_bytes")
                for name in names
            },
        )
        for side in report.sides
    ]
    known = [(side, {name: size for name, size in parts.items() if size is not None}) for side, parts in rows_of_sides]
    whole = max((sum(parts.values()) for _, parts in known), default=0)
    if not whole:
        return Markup()
    lines = []
    for side, parts in known:
        shown = [
            (
                phrase("compare.meaning", name=_name(name), means=format_bytes(size)),
                vocabulary.color("part", name),
                size,
            )
            for name, size in parts.items()
        ]
        lines += [
            tag("b", side.letter),
            stacked(shown, whole),
            tag("span", format_bytes(sum(parts.values())), class_="num"),
        ]
    seen = [name for name in names if any(parts.get(name) for _, parts in known)]
    legend = [
        tag(
            "span",
            swatch(vocabulary.color("part", name)),
            phrase("compare.meaning", name=_name(name), means=vocabulary.meaning("part", name)),
        )
        for name in seen
    ]
    return together([tag("div", *lines, class_="stacks"), tag("div", *legend, class_="legend")])


def _name(part: str) -> str:
    return vocabulary.name("part", part)


def _amounts(report: Comparison) -> Markup:
    heads = rows.heads(report)
    rows_of_sides = [
        *rows.usage_rows(report),
        *((name, values) for name, values, _ in rows.split_rows(report)),
        *rows.count_rows(report),
    ]
    return table(("", *heads), [(name, *values) for name, values in rows_of_sides], range(1, len(heads) + 1))


def _curves(report: Comparison, found: Curves) -> list[Markup]:
    ticks = _ticks(found)
    legend = [tag("span", swatch(_color(at)), f"{side.letter} {side.path}") for at, side in enumerate(report.sides)]
    parts = []
    for name, which in (
        (phrase("compare.title.reserved"), found.reserved),
        (phrase("compare.title.allocated"), found.allocated),
    ):
        # Later traces are dashed: where two curves coincide, both are visible.
        lines = [
            PlotLine(
                phrase("compare.line.name", name=name, letter=side.letter), _color(at), "7 5" if at else "", values
            )
            for at, (side, values) in enumerate(zip(report.sides, which, strict=True))
        ]
        if drawn := curves(lines, ticks):
            parts += [tag("h3", name), drawn]
    return [tag("div", *legend, class_="legend"), *parts] if parts else []


def _ticks(found: Curves) -> list[tuple[float, str]]:
    if found.aligned_by == "share":
        return [(0.0, phrase("compare.tick.begin")), (1.0, phrase("compare.tick.end"))]
    steps = range(max(int(found.start), 0), int(found.end))
    every = -(-len(steps) // _MOST_TICKS) or 1
    first = (found.first_steps or (0,))[0]
    return [
        ((step - found.start) / (found.end - found.start), phrase("places.step", step=str(first + step)))
        for step in steps[::every]
    ]


def _list(report: Comparison, found: Sequence[SiteRow | NameRow], labels: Sequence[str], title: str) -> list[Markup]:
    """Returns rows with a bar for the difference; those beyond ``report.top`` are folded."""
    most = max((abs(_difference(row)) for row in found), default=0)
    heads = rows.heads(report)
    has_lives = any(amount is not None and amount.mean_lifetime is not None for row in found for amount in row.amounts)
    head = [
        title,
        *heads,
        phrase("compare.head.lean"),
        phrase("compare.head.tensors"),
        *([rows.life_title(report)] if has_lives else []),
    ]
    lines = [
        [
            tag("code", label),
            *rows.byte_cells(row),
            _lean(_difference(row), most),
            rows.tensor_cell(row),
            *([rows.life_cell(row)] if has_lives else []),
        ]
        for row, label in zip(found, labels, strict=False)
    ]
    numbers = range(1, len(heads) + 1)
    parts = [table(head, lines[: report.top], numbers)]
    if len(lines) > report.top:
        parts.append(
            tag(
                "details",
                tag("summary", phrase("compare.more", count=len(lines) - report.top)),
                table(head, lines[report.top :], numbers),
                class_="folded",
            )
        )
    if len(found) > len(lines):
        parts.append(tag("p", phrase("fleet.more.json", count=len(found) - len(lines)), class_="under"))
    return parts


def _difference(row: SiteRow | NameRow) -> int:
    """Returns the largest difference from the base, in bytes, or 0 if unknown."""
    base = row.amounts[0]
    if base is None:
        return 0
    return max((other.bytes - base.bytes for other in row.amounts[1:] if other is not None), key=abs, default=0)


def _lean(change: int, most: int) -> Markup:
    share = 50 * abs(change) / max(most, 1)
    part = tag("span", class_="more" if change > 0 else "less", style=f"width:{share:.2f}%") if change else ""
    return tag("div", part, class_="lean")


def _shared_end(report: Comparison) -> list[Markup]:
    if not report.shared_end:
        return []
    return [tag("p", phrase("compare.shared_end", end=report.shared_end), class_="under")]


def _findings(report: Comparison) -> list[Markup]:
    rows_of_sides = [
        (tag("span", fate, class_=f"badge {_FATES[fate.key.rpartition('.')[2]]}"), tag("code", code), title)
        for fate, code, title in rows.finding_rows(report)
    ]
    parts = [table(("", phrase("compare.head.code"), ""), rows_of_sides)] if rows_of_sides else []
    if alike := rows.num_alike(report):
        parts.append(tag("p", phrase("compare.alike", count=alike), class_="under"))
    return parts
