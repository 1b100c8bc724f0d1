"""Many ranks for people: who ran out, who needs most and why, how peaks are distributed, and the findings of all as one list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memdiag.render import fleet_words as words
from memdiag.render.lightpage import Cell, LightPage
from memdiag.render.look import PLAIN, Look
from memdiag.render.text import plain, shorten
from memdiag.render.words import SEVERITY_STYLE, percent
from memdiag.units import format_bytes, format_count, format_ranges, plural

if TYPE_CHECKING:
    from memdiag.fleet.model import Bin, FleetReport, Group, Merged, Odd, Tuned

_MOST_DIFFERENCES = 4
_MOST_PLACES = 2
_MOST_BROKEN = 10
_MOST_NOTES = 12
_HEAT_ROWS = 24
_BAR = 20
_WIDE = 76  # columns


def render(report: FleetReport, look: Look = PLAIN, top: int = 10) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns, with at most ``top`` rows in each list."""
    page = LightPage(look)
    label, style = words.state(report)
    page.grid("lw", [((label, style), (plain(" ".join(report.verdict)), "bold"))], indent=0)
    page.gap()
    page.grid("lw", [((name, "dim"), value) for name, value in words.facts(report)])
    if report.ranks:
        _distribution(page, report.bins)
        _headroom(page, report, top)
        _groups(page, report.groups, top)
        _odd(page, report.odd, top)
        _heat(page, report)
        _findings(page, report, top)
    if report.tuned is not None:
        _tuned(page, report.tuned)
    _broken(page, report)
    if report.notes:
        page.title("What else to know of these files")
        page.grid("lw", [("-", plain(note, 600)) for note in report.notes[:_MOST_NOTES]])
        if len(report.notes) > _MOST_NOTES:
            page.text(f"and {len(report.notes) - _MOST_NOTES} more (--json)", "dim", indent=4)
    if steps := words.next_steps(report):
        page.title("Next")
        for purpose, line in steps:
            page.text(f"{purpose}:", indent=2)
            page.paste(line, 4)
    return page.finish()


def _distribution(page: LightPage, bins: Sequence[Bin]) -> None:
    if not bins:
        return
    page.title("Peaks of ranks (reserved)")
    most = max(len(each.ranks) for each in bins)
    room = max(page.width - 2 - 17 - 2 - 6 - 2 - _BAR - 2, 12)
    rows: list[Sequence[Cell]] = []
    for each in bins:
        number = len(each.ranks)
        if number:
            bar = "█" * -(-number * _BAR // most)
            rows.append((f"{format_bytes(each.low_bytes):>10} and up", format_count(number), bar, (format_ranges(each.ranks, room), "dim")))
        elif rows[-1][0] != "…":
            rows.append(("…", "", "", ""))  # nobody is between
    page.grid("lrll", rows)


def _headroom(page: LightPage, report: FleetReport, top: int) -> None:
    rows = words.tight(report, top)
    page.title("Headroom at the peak" + (", the least" if len(report.ranks) > len(rows) else ""))
    if not rows:
        page.text("unknown: the files do not say how large the device is (--capacity SIZE does)", indent=2)
        return
    wide = page.width >= _WIDE
    table: list[Sequence[Cell]] = [("rank", "left", *(["of"] if wide else []), "reserved", "allocated", "where")]
    for row in rows:
        left = (words.left(row), "red" if row.ran_out else "")
        sizes = [*([row.capacity_bytes] if wide else []), row.peak_reserved_bytes, row.peak_allocated_bytes]
        table.append(((str(row.rank), "bold"), left, *map(format_bytes, sizes), (words.where(row), "dim")))
    page.grid("rrrrrw" if wide else "rrrrw", table)
    page.text("What other processes and libraries outside of the allocator hold comes off what is left.", "dim", indent=2)


def _groups(page: LightPage, groups: Sequence[Group], top: int) -> None:
    if len(groups) < 2 and not any(group.apart for group in groups):
        return
    page.title("Ranks that hold the same part of the model")
    room = max(page.width - 54, 14)
    rows: list[Sequence[Cell]] = [("ranks", "number", "lowest", "middle", "highest")]
    rows += [
        ((format_ranges(group.ranks, room), "bold"), format_count(len(group.ranks)),
         *(format_bytes(size) for size in (group.low_bytes, group.middle_bytes, group.high_bytes)))
        for group in groups[:top]
    ]  # fmt: skip
    page.grid("lrrrr", rows)
    page.gap()
    for group in groups[:top]:
        is_usual = group.against is None and len(group.ranks) > max((len(other.ranks) for other in groups if other is not group), default=0)
        usual = "; most are like these" if is_usual and len(groups) > 1 else ""
        page.grid("lw", [((format_ranges(group.ranks, 20), "bold"), plain(group.label, words.LONGEST) + usual)])
        if group.why:
            middle = groups[group.against or 0].middle
            which = "" if len(group.ranks) == 1 else f"rank {group.middle} "
            page.text(f"{which}beside rank {middle}: {plain(group.why, 400)}", "dim", indent=6)
        if group.apart:
            page.text(plain(group.apart, 400), "dim", indent=6)
    if len(groups) > top:
        page.text(f"and {plural(len(groups) - top, 'more group')} (--top, --json)", "dim", indent=2)


def _odd(page: LightPage, odd: Sequence[Odd], top: int) -> None:
    if not odd:
        return
    page.title("Odd ranks: far from the middle of those that hold the same")
    for each in odd[:top]:
        page.gap()
        amount = f"{words.signed(each.delta_bytes)} {each.curve}"
        who = f"rank {each.rank}, beside rank {each.against}"
        if len(each.ranks) > 1:
            who = f"{plural(len(each.ranks), 'rank')}: {format_ranges(each.ranks, 40)}; here rank {each.rank}, beside rank {each.against}"
        page.grid("lw", [((amount, "yellow" if each.delta_bytes > 0 else "cyan"), (who, "bold"))])
        page.text(plain(each.why, 400), indent=4)
        rows: list[Sequence[Cell]] = [(("", "dim"), ("what it holds more or less of", "dim"), ("tensors", "dim"))]
        rows += [_cells(words.difference(difference), page.width - 40) for difference in each.differences[:_MOST_DIFFERENCES]]
        page.grid("rlr", rows, indent=4)
        for place, more in each.places[:_MOST_PLACES]:
            page.text(f"{words.signed(more)} made at {plain(place, 100)}", "dim", indent=6)
    if len(odd) > top:
        page.text(f"and {len(odd) - top} more (--top, --json)", "dim", indent=2)


def _cells(row: tuple[str, str, str], room: int) -> Sequence[Cell]:
    return row[0], shorten(row[1], room), (row[2], "dim")


def _heat(page: LightPage, report: FleetReport) -> None:
    heat = report.heat
    if heat is None or len(heat.ranks) < 2:
        return
    rows, low, high = words.heat_rows(report, heat, _HEAT_ROWS, page.width - 34)
    if not rows:
        return
    along = "steps" if heat.along == "step" else "parts of the trace"
    page.title(f"Peak {heat.what} of ranks over {along}")
    stretch = max((page.width - 34) // max(len(rows[0].shades), 1), 1)
    stretch = min(stretch, 6)
    name = max(len(row.name) for row in rows)
    for row in rows:
        cells = "".join(shade * stretch for shade in row.shades)
        page.spans([(f"{row.name:>{name}} ", "bold"), (cells, "cyan"), (f"  {row.said}" if row.said else "", "yellow")], indent=2)
    page.spans([(" " * (name + 1), ""), (f"{heat.columns[0]} … {heat.columns[-1]}", "dim")], indent=2)
    scale = "".join(words.SHADES)
    page.text(f"{format_bytes(low)} {scale} {format_bytes(high)}; each mark is the highest of what it stands for", "dim", indent=2)


def _findings(page: LightPage, report: FleetReport, top: int) -> None:
    serious = [finding for finding in report.findings if finding.severity != "info"]
    page.title("Findings of all ranks")
    if not serious:
        page.text("No problem was found.", indent=2)
        return
    told: set[str] = set()
    for finding in serious[:top]:
        _finding(page, finding, len(report.ranks), told)
    rest = len(report.findings) - len(serious[:top])
    if rest:
        page.gap()
        page.text(f"and {plural(rest, 'more finding')} (--top, --json)", "dim", indent=2)


def _finding(page: LightPage, finding: Merged, num_ranks: int, told: set[str]) -> None:
    page.gap()
    number = len(finding.ranks)
    page.grid("llw", [(
        (plain(finding.code), "cyan"), (finding.severity.upper(), SEVERITY_STYLE.get(finding.severity, "")),
        (plain(finding.title, words.LONGEST), "bold"),
    )])  # fmt: skip
    who = f"rank {finding.rank}" if number == 1 else f"ranks {format_ranges(finding.ranks, 40)} ({percent(number / num_ranks)})"
    if number == num_ranks > 1:
        who = f"all {format_count(number)} ranks"
    amount = ""
    if finding.high_bytes:
        same = finding.low_bytes == finding.high_bytes or number == 1
        amount = (
            f": {format_bytes(finding.high_bytes)}"
            if same
            else f": {format_bytes(finding.low_bytes)} to {format_bytes(finding.high_bytes)}"
        )
    of = f"; the title is of rank {finding.rank}" if number > 1 else ""
    page.text(f"{who}{amount}{of}", indent=9)
    if finding.place:
        page.text(plain(finding.place, words.LONGEST), "dim", indent=9)
    for fix in finding.fixes[:1]:
        if fix.title not in told:
            page.grid("lw", [(("fix", "green"), plain(fix.title, words.LONGEST))], indent=9)
            if fix.change and "\n" not in fix.change:
                page.paste(plain(fix.change), 14)
        told.add(fix.title)


def _tuned(page: LightPage, tuned: Tuned) -> None:
    page.title("One setting for all")
    best = tuned.report.recommended
    searched = f"Searched on ranks {format_ranges(tuned.ranks)}, which stand for the rest."
    if best is None:
        page.grid("lw", [(("KEEP", "green"), (f"the recorded settings: {tuned.report.verdict}", "bold"))])
        page.text(searched, "dim", indent=2)
        return
    page.grid("lw", [(("SET", "green"), (tuned.report.verdict, "bold"))])
    page.paste(plain(best.line), 4)
    page.text(searched, "dim", indent=2)
    for sentence in words.checked_words(tuned.checked) if tuned.checked is not None else ():
        page.text(sentence, indent=2)
    page.grid("lw", [("-", plain(caveat)) for caveat in best.caveats])


def _broken(page: LightPage, report: FleetReport) -> None:
    if not report.broken:
        return
    page.title("Files that could not be read")
    for broken in report.broken[:_MOST_BROKEN]:
        name = f"rank {broken.rank}" if broken.rank is not None else "?"
        message = plain(broken.message, 400)
        shown = message if plain(broken.file) in message else f"{plain(broken.file)}: {message}"
        page.grid("lw", [((name, "red"), shown)])
        if broken.hint:
            page.text(plain(broken.hint, 300), "dim", indent=4)
    if len(report.broken) > _MOST_BROKEN:
        page.text(f"and {len(report.broken) - _MOST_BROKEN} more (--json)", "dim", indent=2)
