"""The report on many ranks as GitHub-flavoured markdown; text from files is escaped as in support/markdown.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdiag import vocabulary
from memdiag.render.fleet import words
from memdiag.render.support import shared_cards
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.markdown import cell, code, escape, fence, table
from memdiag.render.support.words import severity_name
from memdiag.text import in_ascii, joined, phrase, plain, sentence
from memdiag.units import format_bytes, format_count, format_ranges
from memdiag.version import __version__

if TYPE_CHECKING:
    from memdiag.results.fleet import FleetReport, Merged, Outlier, Tuned
    from memdiag.results.shared_cards import SharedCard

_MOST_DIFFERENCES = 6
_MOST_BROKEN = 50
_MOST_NOTES = 50
_HEAT_ROWS, _HEAT_COLUMNS = 32, 48


def render(report: FleetReport, look: Look = PLAIN, top: int = 10) -> str:
    """Returns the report as markdown, with at most ``top`` rows in each list; of ``look``, only ``unicode`` is used."""
    lines = [f"## memdiag fleet: {words.state(report)[0]}", "", f"**{escape(joined(report.verdict))}**", ""]
    lines += table((phrase("fleet.head.read"), ""), ((name, escape(value)) for name, value in words.facts(report)))
    if report.ranks:
        lines += _peaks(report, top)
        lines += [line for card in report.cards for line in _card(card)]
        lines += _groups(report, top)
        lines += [line for odd in report.outliers[:top] for line in _odd(odd)]
        lines += _heat(report)
        lines += [
            line for finding in [f for f in report.findings if f.severity != "info"][:top] for line in _finding(finding)
        ]
    lines += _tuned(report.tuned) if report.tuned is not None else []
    if report.unreadable:
        rows = (
            (str(each.rank) if each.rank is not None else "", cell(each.file), escape(each.message))
            for each in report.unreadable
        )
        lines += [_title("broken"), "", *table(_heads("rank", "file", "why"), list(rows)[:_MOST_BROKEN])]
    if report.notes:
        lines += [_title("notes"), "", *(f"- {escape(note)}" for note in report.notes[:_MOST_NOTES]), ""]
    lines.append(f"<sub>memdiag {escape(__version__)}</sub>")
    text = "\n".join(lines) + "\n"
    return text if look.unicode else in_ascii(text)


def _title(name: str) -> str:
    return f"### {phrase(f'fleet.title.{name}')}"


def _card(card: SharedCard) -> list[str]:
    lines = [f"### {phrase('fleet.title.card', card=escape(plain(card.card, 60)))}", ""]
    lines += [f"- {escape(line)}" for line in shared_cards.processes(card)]
    head, *rest = shared_cards.head(card)
    rows = ((escape(name), *sizes) for name, *sizes in shared_cards.rows(card))
    lines += ["", *table((head, *rest), rows, tuple(range(1, len(rest) + 1)))]
    return [*lines, *(f"{escape(line)}\n" for line in shared_cards.kept(card))]


def _heads(*names: str) -> tuple[str, ...]:
    return tuple(phrase(f"fleet.head.{name}") for name in names)


def _peaks(report: FleetReport, top: int) -> list[str]:
    bins = (
        (
            phrase("fleet.and_up", bytes=format_bytes(each.low_bytes)),
            format_count(len(each.ranks)),
            format_ranges(each.ranks, 80),
        )
        for each in report.distribution
        if each.ranks
    )
    lines = [_title("peaks"), "", *table(_heads("peak", "number", "ranks"), bins, (0, 1))]
    tight = words.tight(report, top)
    if not tight:
        return lines
    rows = (
        (
            str(row.rank),
            words.left(row),
            format_bytes(row.capacity_bytes),
            format_bytes(row.peak_reserved_bytes),
            format_bytes(row.peak_allocated_bytes),
            escape(words.where(row)),
        )
        for row in tight
    )
    head = _heads("rank", "left", "of", "reserved", "allocated", "where")
    return [*lines, _title("headroom.least"), "", *table(head, rows, (0, 1, 2, 3, 4))]


def _groups(report: FleetReport, top: int) -> list[str]:
    if len(report.groups) < 2:
        return []
    rows = (
        (
            format_ranges(group.ranks, 60),
            format_count(len(group.ranks)),
            format_bytes(group.low_bytes),
            format_bytes(group.median_bytes),
            format_bytes(group.high_bytes),
            escape(group.label),
            escape("; ".join(text for text in (group.explanation, group.spread_explanation) if text)),
        )
        for group in report.groups[:top]
    )
    head = _heads("ranks", "number", "lowest", "middle", "highest", "hold", "differ")
    return [_title("groups"), "", *table(head, rows, (1, 2, 3, 4))]


def _odd(odd: Outlier) -> list[str]:
    amount = f"{words.signed(odd.delta_bytes)} {vocabulary.name('curve', odd.curve)}"
    title = f"### {phrase('fleet.odd.title', amount=amount, who=words.odd_words(odd))}"
    rows = [
        (size, escape(what), number)
        for size, what, number in (words.difference(each) for each in odd.differences[:_MOST_DIFFERENCES])
    ]
    return [
        title,
        "",
        escape(sentence(odd.explanation)),
        "",
        *table(_heads("bytes", "difference", "tensors"), rows, (0, 2)),
    ]


def _heat(report: FleetReport) -> list[str]:
    if report.heatmap is None or len(report.heatmap.ranks) < 2:
        return []
    rows, low, high = words.heat_rows(report, report.heatmap, _HEAT_ROWS, _HEAT_COLUMNS)
    if not rows:
        return []
    width = max(len(row.name) for row in rows)
    drawn = [f"{row.name:>{width}} {row.shades}  {row.said}".rstrip() for row in rows]
    scale = f"{format_bytes(low)} {words.SHADES} {format_bytes(high)}"
    return [f"### {words.heat_title(report)}", "", *fence([*drawn, "", scale], "text"), ""]


def _finding(finding: Merged) -> list[str]:
    who = phrase("fleet.rank" if len(finding.ranks) == 1 else "fleet.ranks", rank=format_ranges(finding.ranks, 80))
    lines = [f"### {escape(finding.code)} {escape(finding.title)} ({severity_name(finding.severity)})", ""]
    lines += [f"{who}" + (f" · {code(finding.site)}" if finding.site else ""), ""]
    for fix in finding.fixes[:1]:
        lines += [f"**{phrase('fleet.fix')}:** {escape(fix.title)}", ""]
        if fix.change:
            lines += [*fence([plain(line) for line in fix.change.split("\n")]), ""]
    return lines


def _tuned(tuned: Tuned) -> list[str]:
    best = tuned.report.recommended
    lines = [_title("setting"), ""]
    if best is None:
        return [*lines, escape(sentence(phrase("fleet.keep", why=tuned.report.verdict))), ""]
    lines += [escape(sentence(tuned.report.verdict)), "", *fence([plain(best.command)], "sh"), ""]
    return [*lines, *(escape(line) for line in (words.checked_words(tuned.checked) if tuned.checked else ())), ""]
