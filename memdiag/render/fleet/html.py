"""The report on many ranks as a web page: the verdict, memory of all ranks to scale, a heat map, and differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memdiag import vocabulary
from memdiag.render.fleet import words
from memdiag.render.fleet.cards_html import card_sections
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.pages import Markup, Section, page, stacked, swatch, table, tag, tile, together
from memdiag.render.support.pages.plots import HeatMapRow, heat, heat_legend
from memdiag.render.support.words import severity_name
from memdiag.text import joined, phrase, sentence
from memdiag.units import format_bytes, format_count, format_ranges

if TYPE_CHECKING:
    from memdiag.results.fleet import FleetReport, HeatMap, Merged, Outlier, Rank, RankGroup, Tuned

_MOST_RANKS, _MOST_BROKEN, _MOST_NOTES = 2000, 200, 200
_HEAT_ROWS, _HEAT_COLUMNS = 256, 96
_MOST_DIFFERENCES = 8
_UNUSED = "var(--line-strong)"  # a colour of the page, since no tensor holds this memory
_KINDS = {"bold red": "critical", "yellow": "warning", "green": "ok"}


# A page looks the same everywhere.
def render(report: FleetReport, look: Look = PLAIN, top: int = 10) -> str:  # noqa: ARG001
    """Returns the report as a page; rows of a list beyond ``top`` are folded."""
    label, style = words.state(report)
    headline = [
        tag("div", tag("span", label, class_=f"badge {_KINDS[style]}")),
        tag("h1", joined(report.verdict)),
        tag(
            "p",
            joined((phrase("fleet.fact", name=name, value=value) for name, value in words.facts(report)), "; "),
            class_="lead",
        ),
        tag("div", *_tiles(report), class_="numbers"),
    ]
    ranks = format_ranges((row.rank for row in report.ranks), 60)
    return page(phrase("fleet.page", ranks=ranks), headline, list(_sections(report, top)))


def _sections(report: FleetReport, top: int) -> Iterator[Section]:
    if report.ranks:
        yield Section("peaks", phrase("fleet.title.peaks"), [_peaks(report)])
        if report.heatmap is not None and (drawn := _heat(report, report.heatmap)):
            yield Section("heat", words.heat_title(report), drawn)
        yield from card_sections(report)
        yield Section("ranks", phrase("fleet.title.headroom"), _ranks(report, top))
        if len(report.groups) > 1 or any(group.spread_explanation for group in report.groups):
            yield Section("groups", phrase("fleet.title.groups"), [_groups(report.groups)])
        if report.outliers:
            yield Section("odd", phrase("fleet.title.odd"), [part for odd in report.outliers for part in _odd(odd)])
        yield Section("findings", phrase("fleet.title.findings"), _findings(report, top))
    if report.tuned is not None:
        yield Section("setting", phrase("fleet.title.setting"), _tuned(report.tuned))
    if report.unreadable:
        rows = [
            (each.rank if each.rank is not None else "", tag("code", each.file), each.message, each.hint)
            for each in report.unreadable
        ]
        yield Section(
            "broken", phrase("fleet.title.broken"), [table(_heads("rank", "file", "why", "todo"), rows[:_MOST_BROKEN])]
        )
    if report.notes:
        notes = [tag("li", note) for note in report.notes[:_MOST_NOTES]]
        yield Section("notes", phrase("fleet.title.notes"), [tag("ul", *notes, class_="notes")])
    if steps := words.next_steps(report):
        yield Section(
            "next",
            phrase("fleet.title.next"),
            [tag("div", tag("p", phrase("fleet.next", purpose=purpose)), _paste(line)) for purpose, line in steps],
        )


def _heads(*names: str) -> tuple[str, ...]:
    return tuple(phrase(f"fleet.head.{name}") for name in names)


def _paste(line: str) -> Markup:
    return tag("code", line, class_="paste-line")


def _tiles(report: FleetReport) -> Iterator[Markup]:
    if not report.ranks:
        return
    failed = [row.rank for row in report.ranks if row.is_out_of_memory]
    many = format_count(len(report.ranks))
    yield tile(
        phrase("fleet.tile.failed"),
        format_count(len(failed)),
        phrase("fleet.ranks", rank=format_ranges(failed, 40)) if failed else phrase("fleet.tile.of", count=many),
        "bad" if failed else "",
    )
    highest = max(report.ranks, key=lambda row: row.peak_bytes)
    yield tile(
        phrase("fleet.tile.highest"), format_bytes(highest.peak_bytes), phrase("fleet.rank", rank=str(highest.rank))
    )
    if (least := words.tight(report, 1)) and not least[0].is_out_of_memory:
        yield tile(phrase("fleet.tile.least"), words.left(least[0]), phrase("fleet.rank", rank=str(least[0].rank)))
    odd = sum(len(each.ranks) for each in report.outliers if each.delta_bytes > 0)
    yield tile(phrase("fleet.tile.odd"), format_count(odd), phrase("fleet.tile.odd.why"), "warn" if odd else "")


def _peaks(report: FleetReport) -> Markup:
    """Returns the number of ranks with a peak in each range of bytes."""
    most = max((len(each.ranks) for each in report.distribution), default=1)
    rows = [
        (
            phrase("fleet.and_up", bytes=format_bytes(each.low_bytes)),
            format_count(len(each.ranks)),
            tag("div", tag("div", class_="rail", style=f"width:{100 * len(each.ranks) / most:.2f}%"), class_="track"),
            format_ranges(each.ranks, 80),
        )
        for each in report.distribution
        if each.ranks
    ]
    return table((*_heads("peak", "number"), "", *_heads("ranks")), rows, (1,))


def _heat(report: FleetReport, found: HeatMap) -> list[Markup]:
    drawn = words.heat_values(report, found, _HEAT_ROWS, _HEAT_COLUMNS)
    if not drawn.rows:
        return []
    rows = [HeatMapRow(row.name, row.values, row.said, phrase("fleet.rank", rank=row.name)) for row in drawn.rows]
    names = [phrase("places.step", step=name) if found.axis == "step" else name for name in drawn.columns]
    return [
        heat_legend(drawn.low, drawn.high),
        heat(rows, names, drawn.low, drawn.high),
        tag("p", phrase("fleet.heat.note"), class_="under"),
    ]


def _ranks(report: FleetReport, top: int) -> list[Markup]:
    """Returns every rank with its tensors and unused memory, all to one scale."""
    known = words.tight(report, len(report.ranks))
    there = {row.rank for row in known}
    rest = sorted((row for row in report.ranks if row.rank not in there), key=lambda row: -row.peak_bytes)
    ordered = [*known, *rest][:_MOST_RANKS]
    whole = max(max(row.capacity_bytes or 0, row.peak_bytes) for row in report.ranks)
    head = _heads("rank", "left", "of", "reserved", "allocated", "parts", "where")
    lines = [
        (
            tag("b", row.rank),
            words.left(row) if row.rank in there else format_bytes(None),
            format_bytes(row.capacity_bytes),
            format_bytes(row.peak_reserved_bytes),
            format_bytes(row.peak_allocated_bytes),
            _parts(row, whole),
            words.where(row),
        )
        for row in ordered
    ]
    categories = [
        name for name in vocabulary.STYLES["category"] if any(row.by_category.get(name) for row in report.ranks)
    ]
    legend = [
        tag("span", swatch(vocabulary.color("category", name)), vocabulary.name("category", name))
        for name in categories
    ]
    legend.append(tag("span", swatch(_UNUSED), phrase("fleet.unused")))
    parts = [tag("div", *legend, class_="legend"), table(head, lines[:top], range(5))]
    if len(lines) > top:
        parts.append(
            tag(
                "details",
                tag("summary", phrase("fleet.more", count=len(lines) - top)),
                table(head, lines[top:], range(5)),
                class_="folded",
            )
        )
    if len(report.ranks) > len(lines):
        parts.append(tag("p", phrase("fleet.more.json", count=len(report.ranks) - len(lines)), class_="under"))
    parts.append(tag("p", phrase("fleet.headroom.outside"), class_="under"))
    return parts


def _parts(row: Rank, whole: int) -> Markup:
    order = list(vocabulary.STYLES["category"])
    held = sorted(row.by_category.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order))
    parts = [
        (
            phrase("fleet.fact", name=vocabulary.name("category", name), value=format_bytes(size)),
            vocabulary.color("category", name),
            size,
        )
        for name, size in held
    ]
    if row.unused_bytes:
        parts.append(
            (
                phrase("fleet.fact", name=phrase("fleet.unused"), value=format_bytes(row.unused_bytes)),
                _UNUSED,
                row.unused_bytes,
            )
        )
    return stacked(parts, whole)


def _groups(groups: Sequence[RankGroup]) -> Markup:
    rows = [
        (
            format_ranges(group.ranks, 60),
            format_count(len(group.ranks)),
            format_bytes(group.low_bytes),
            format_bytes(group.median_bytes),
            format_bytes(group.high_bytes),
            group.label,
            joined((group.explanation, group.spread_explanation), "; "),
        )
        for group in groups
    ]
    return table(_heads("ranks", "number", "lowest", "middle", "highest", "hold", "why-differ"), rows, (1, 2, 3, 4))


def _odd(odd: Outlier) -> list[Markup]:
    who = (
        phrase("fleet.rank", rank=str(odd.rank))
        if len(odd.ranks) == 1
        else phrase("fleet.odd.most", ranks=format_ranges(odd.ranks, 60), rank=str(odd.rank))
    )
    rows = [words.difference(each) for each in odd.differences[:_MOST_DIFFERENCES]]
    places = [(words.signed(each.delta_bytes), tag("code", each.site)) for each in odd.sites[:_MOST_DIFFERENCES]]
    return [
        tag(
            "h3",
            phrase(
                "fleet.odd.head",
                who=who,
                bytes=words.signed(odd.delta_bytes),
                curve=vocabulary.name("curve", odd.curve),
                other=str(odd.reference_rank),
            ),
        ),
        tag("p", odd.explanation, class_="lead"),
        table(_heads("bytes", "contents", "tensors"), rows, (0, 2)),
        *([table(_heads("bytes", "call-site"), places, (0,))] if places else []),
    ]


def _findings(report: FleetReport, top: int) -> list[Markup]:
    serious = [finding for finding in report.findings if finding.severity != "info"]
    others = [finding for finding in report.findings if finding.severity == "info"]
    parts = [_finding(finding, len(report.ranks)) for finding in serious[:top]] or [
        tag("p", phrase("fleet.no_problem"))
    ]
    if rest := [*serious[top:], *others]:
        shown = [_finding(finding, len(report.ranks)) for finding in rest]
        parts.append(
            tag("details", tag("summary", phrase("fleet.more.findings", count=len(rest))), *shown, class_="folded")
        )
    return parts


def _finding(finding: Merged, num_ranks: int) -> Markup:
    who = (
        phrase("fleet.rank", rank=str(finding.rank))
        if len(finding.ranks) == 1
        else phrase("fleet.ranks", rank=format_ranges(finding.ranks, 80))
    )
    if len(finding.ranks) == num_ranks > 1:
        who = phrase("fleet.ranks.all", count=num_ranks)
    title = tag(
        "p",
        tag("span", severity_name(finding.severity), class_=f"badge {finding.severity}"),
        tag("code", finding.code),
        " ",
        tag("b", finding.title),
        class_="finding-line",
    )
    place = [" · ", tag("code", finding.site)] if finding.site else []
    lines = [title, tag("p", who, *place, class_="soft")]
    for fix in finding.fixes:
        lines.append(tag("p", phrase("fleet.fixed", title=fix.title)))
        if fix.change:
            lines.append(
                _paste(fix.change)
                if "\n" not in fix.change
                else tag("pre", *(_paste(each) for each in fix.change.split("\n")))
            )
    return together(lines)


def _tuned(tuned: Tuned) -> list[Markup]:
    best = tuned.report.recommended
    if best is None:
        return [tag("p", phrase("fleet.keep", why=tuned.report.verdict))]
    checked = words.checked_words(tuned.checked) if tuned.checked else []
    return [
        tag("p", sentence(tuned.report.verdict)),
        _paste(best.command),
        *(tag("p", line) for line in checked),
        tag("ul", *(tag("li", caveat) for caveat in best.caveats), class_="notes"),
    ]
