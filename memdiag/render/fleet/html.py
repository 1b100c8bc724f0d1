"""Many ranks as one page for a browser: the verdict, every rank's memory to one scale, bytes by rank and step, and what differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memdiag import vocabulary
from memdiag.render.fleet import words
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.pages import Markup, Section, page, stacked, swatch, table, tag, tile, together
from memdiag.render.support.pages.plots import HeatRow, heat, heat_legend
from memdiag.units import format_bytes, format_count, format_ranges, plural

if TYPE_CHECKING:
    from memdiag.results.fleet import FleetReport, Group, HeatMap, Merged, Odd, Rank, Tuned

_MOST_RANKS, _MOST_BROKEN, _MOST_NOTES = 2000, 200, 200
_HEAT_ROWS, _HEAT_COLUMNS = 256, 96
_MOST_DIFFERENCES = 8
_UNUSED = "var(--line-strong)"  # a colour of the page, since no tensor holds this memory
_KINDS = {"bold red": "critical", "yellow": "warning", "green": "ok"}


def render(report: FleetReport, look: Look = PLAIN, top: int = 10) -> str:  # noqa: ARG001 - a page looks the same wherever it goes
    """Returns the report as a page; what goes beyond ``top`` rows of a list is folded away."""
    label, style = words.state(report)
    headline = [
        tag("div", tag("span", label, class_=f"badge {_KINDS[style]}")),
        tag("h1", " ".join(report.verdict)),
        tag("p", "; ".join(f"{name}: {value}" for name, value in words.facts(report)), class_="lead"),
        tag("div", *_tiles(report), class_="numbers"),
    ]
    ranks = format_ranges((row.rank for row in report.ranks), 60)
    return page(f"fleet: ranks {ranks}", headline, list(_sections(report, top)))


def _sections(report: FleetReport, top: int) -> Iterator[Section]:
    if report.ranks:
        yield Section("peaks", "Peaks (reserved)", [_peaks(report)])
        if report.heat is not None and (drawn := _heat(report, report.heat)):
            along = "steps" if report.heat.along == "step" else "parts of the trace"
            yield Section("heat", f"Peak {report.heat.what} of ranks over {along}", drawn)
        yield Section("ranks", "Ranks, least headroom first", _ranks(report, top))
        if len(report.groups) > 1 or any(group.apart for group in report.groups):
            yield Section("groups", "Ranks that hold the same part of the model", [_groups(report.groups)])
        if report.odd:
            title = "Odd ranks: far from the middle of those that hold the same"
            yield Section("odd", title, [part for odd in report.odd for part in _odd(odd)])
        yield Section("findings", "Findings of all ranks", _findings(report, top))
    if report.tuned is not None:
        yield Section("setting", "One setting for all", _tuned(report.tuned))
    if report.broken:
        rows = [(each.rank if each.rank is not None else "", tag("code", each.file), each.message, each.hint) for each in report.broken]
        yield Section("broken", "Files that could not be read", [table(("rank", "file", "why", "what to do"), rows[:_MOST_BROKEN])])
    if report.notes:
        notes = [tag("li", note) for note in report.notes[:_MOST_NOTES]]
        yield Section("notes", "What else to know of these files", [tag("ul", *notes, class_="notes")])
    if steps := words.next_steps(report):
        yield Section("next", "Next", [tag("div", tag("p", f"{purpose}:"), _paste(line)) for purpose, line in steps])


def _paste(line: str) -> Markup:
    return tag("code", line, class_="paste-line")


def _tiles(report: FleetReport) -> Iterator[Markup]:
    if not report.ranks:
        return
    failed = [row.rank for row in report.ranks if row.ran_out]
    many = format_count(len(report.ranks))
    yield tile(
        "ranks that ran out of memory",
        format_count(len(failed)),
        f"ranks {format_ranges(failed, 40)}" if failed else f"of {many}",
        "bad" if failed else "",
    )
    highest = max(report.ranks, key=lambda row: row.peak_bytes)
    yield tile("highest peak (reserved)", format_bytes(highest.peak_bytes), f"rank {highest.rank}")
    if (least := words.tight(report, 1)) and not least[0].ran_out:
        yield tile("least headroom", words.left(least[0]), f"rank {least[0].rank}")
    odd = sum(len(each.ranks) for each in report.odd if each.delta_bytes > 0)
    yield tile("odd ranks", format_count(odd), "need more than those that hold the same", "warn" if odd else "")


def _peaks(report: FleetReport) -> Markup:
    """How many ranks have a peak in each range of bytes."""
    most = max((len(each.ranks) for each in report.bins), default=1)
    rows = [
        (f"{format_bytes(each.low_bytes)} and up", format_count(len(each.ranks)),
         tag("div", tag("div", class_="rail", style=f"width:{100 * len(each.ranks) / most:.2f}%"), class_="track"),
         format_ranges(each.ranks, 80))
        for each in report.bins if each.ranks
    ]  # fmt: skip
    return table(("peak", "number", "", "ranks"), rows, (1,))


def _heat(report: FleetReport, found: HeatMap) -> list[Markup]:
    drawn = words.heat_values(report, found, _HEAT_ROWS, _HEAT_COLUMNS)
    if not drawn.rows:
        return []
    rows = [HeatRow(row.name, row.values, row.said, f"rank {row.name}") for row in drawn.rows]
    prefix = "step " if found.along == "step" else ""
    note = "Each field is the highest value of what it stands for; point at one to read it."
    return [
        heat_legend(drawn.low, drawn.high),
        heat(rows, [f"{prefix}{name}" for name in drawn.columns], drawn.low, drawn.high),
        tag("p", note, class_="under"),
    ]


def _ranks(report: FleetReport, top: int) -> list[Markup]:
    """Every rank, with what tensors and unused memory take of the largest device or peak, all to one scale."""
    known = words.tight(report, len(report.ranks))
    there = {row.rank for row in known}
    rest = sorted((row for row in report.ranks if row.rank not in there), key=lambda row: -row.peak_bytes)
    ordered = [*known, *rest][:_MOST_RANKS]
    whole = max(max(row.capacity_bytes or 0, row.peak_bytes) for row in report.ranks)
    head = ("rank", "left", "of", "reserved", "allocated", "what it consists of when most is allocated", "where")
    lines = [
        (tag("b", row.rank), words.left(row) if row.rank in there else "unknown", format_bytes(row.capacity_bytes),
         format_bytes(row.peak_reserved_bytes), format_bytes(row.peak_allocated_bytes), _parts(row, whole), words.where(row))
        for row in ordered
    ]  # fmt: skip
    categories = [name for name in vocabulary.STYLES["category"] if any(row.by_category.get(name) for row in report.ranks)]
    legend = [tag("span", swatch(vocabulary.color("category", name)), vocabulary.name("category", name)) for name in categories]
    legend.append(tag("span", swatch(_UNUSED), "reserved, not in use"))
    parts = [tag("div", *legend, class_="legend"), table(head, lines[:top], range(5))]
    if len(lines) > top:
        parts.append(tag("details", tag("summary", f"{len(lines) - top:,} more"), table(head, lines[top:], range(5)), class_="folded"))
    if len(report.ranks) > len(lines):
        parts.append(tag("p", f"And {len(report.ranks) - len(lines):,} more (--json).", class_="under"))
    parts.append(tag("p", "What other processes and libraries outside of the allocator hold comes off what is left.", class_="under"))
    return parts


def _parts(row: Rank, whole: int) -> Markup:
    order = list(vocabulary.STYLES["category"])
    held = sorted(row.by_category.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order))
    parts = [
        (f"{vocabulary.name('category', name)}: {format_bytes(size)}", vocabulary.color("category", name), size) for name, size in held
    ]
    if row.unused_bytes:
        parts.append((f"reserved, not in use: {format_bytes(row.unused_bytes)}", _UNUSED, row.unused_bytes))
    return stacked(parts, whole)


def _groups(groups: Sequence[Group]) -> Markup:
    rows = [
        (format_ranges(group.ranks, 60), format_count(len(group.ranks)), format_bytes(group.low_bytes), format_bytes(group.middle_bytes),
         format_bytes(group.high_bytes), group.label, "; ".join(text for text in (group.why, group.apart) if text))
        for group in groups
    ]  # fmt: skip
    return table(("ranks", "number", "lowest", "middle", "highest", "hold", "why they differ"), rows, (1, 2, 3, 4))


def _odd(odd: Odd) -> list[Markup]:
    who = f"rank {odd.rank}" if len(odd.ranks) == 1 else f"ranks {format_ranges(odd.ranks, 60)}; most: rank {odd.rank}"
    rows = [words.difference(each) for each in odd.differences[:_MOST_DIFFERENCES]]
    places = [(words.signed(more), tag("code", place)) for place, more in odd.places[:_MOST_DIFFERENCES]]
    return [
        tag("h3", f"{who}: {words.signed(odd.delta_bytes)} {odd.curve}, beside rank {odd.against}"),
        tag("p", odd.why, class_="lead"),
        table(("bytes", "what it holds more or less of", "tensors"), rows, (0, 2)),
        *([table(("bytes", "made at"), places, (0,))] if places else []),
    ]


def _findings(report: FleetReport, top: int) -> list[Markup]:
    serious = [finding for finding in report.findings if finding.severity != "info"]
    others = [finding for finding in report.findings if finding.severity == "info"]
    parts = [_finding(finding, len(report.ranks)) for finding in serious[:top]] or [tag("p", "No problem was found.")]
    if rest := [*serious[top:], *others]:
        shown = [_finding(finding, len(report.ranks)) for finding in rest]
        parts.append(tag("details", tag("summary", plural(len(rest), "more finding")), *shown, class_="folded"))
    return parts


def _finding(finding: Merged, num_ranks: int) -> Markup:
    who = f"rank {finding.rank}" if len(finding.ranks) == 1 else f"ranks {format_ranges(finding.ranks, 80)}"
    if len(finding.ranks) == num_ranks > 1:
        who = f"all {format_count(num_ranks)} ranks"
    title = tag("p", tag("span", finding.severity, class_=f"badge {finding.severity}"), tag("code", finding.code), " ",
                tag("b", finding.title), class_="finding-line")  # fmt: skip
    place = [" · ", tag("code", finding.place)] if finding.place else []
    lines = [title, tag("p", who, *place, class_="soft")]
    for fix in finding.fixes:
        lines.append(tag("p", tag("b", "Fix: "), fix.title))
        if fix.change:
            lines.append(_paste(fix.change) if "\n" not in fix.change else tag("pre", *(_paste(each) for each in fix.change.split("\n"))))
    return together(lines)


def _tuned(tuned: Tuned) -> list[Markup]:
    best = tuned.report.recommended
    if best is None:
        return [tag("p", f"Keep the recorded settings: {tuned.report.verdict}.")]
    checked = words.checked_words(tuned.checked) if tuned.checked else []
    return [tag("p", f"{tuned.report.verdict}."), _paste(best.line), *(tag("p", line) for line in checked),
            tag("ul", *(tag("li", caveat) for caveat in best.caveats), class_="notes")]  # fmt: skip
