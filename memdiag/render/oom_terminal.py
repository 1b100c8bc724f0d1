"""Out-of-memory messages for people, in a terminal: the verdict first, then where the memory was, what to do, and what next.

One message takes about a screen. Many are grouped by cause; the first one, where it all began, is explained in full.
"""

from __future__ import annotations

from memdiag.findings import Finding, Fix
from memdiag.oom.model import Message, OomReport
from memdiag.render import oom_words as words
from memdiag.render.bar import share_out
from memdiag.render.lightpage import Cell, LightPage
from memdiag.render.look import PLAIN, Look
from memdiag.render.text import plain
from memdiag.render.words import percent
from memdiag.units import format_bytes, plural

LONGEST = 400  # characters of a text
MOST_FIXES = (3, 2)  # of the first finding, and of another


def render(report: OomReport, look: Look = PLAIN, *, every: bool = False, top: int = 10) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns.

    Args:
        report: The messages.
        look: The place it is shown in.
        every: A row for each message, rather than for groups of them.
        top: Rows in each list.
    """
    page = LightPage(look)
    if not report.messages:
        _nothing(page, report)
        return page.finish()
    if len(report.messages) > 1:
        _overview(page, report, every=every, top=top)
    _message(page, report.messages[0], report.trace, every=every)
    if others := words.others(report.messages):
        page.title("Other causes")
        page.grid("lw", [((name.upper(), "bold"), reason) for name, reason in others])
    return page.finish()


def _nothing(page: LightPage, report: OomReport) -> None:
    page.text("No out-of-memory message was found.", "bold")
    for line in words.nothing(report):
        page.gap()
        page.text(line)
    for example in words.EXAMPLES if report.num_lines or not report.trace else ():
        page.text(example, "dim", indent=2)


def _overview(page: LightPage, report: OomReport, *, every: bool, top: int) -> None:
    page.text(words.summary(report), "bold")
    head, rows, rest = words.overview(report, every=every, top=top, width=page.width)
    if len(rows) > 1:  # one is what the line above says
        page.gap()
        table: list[list[Cell]] = [[(title, "bold") for title in head]]
        table += [[*row[:-1], (row[-1], "dim")] for row in rows]
        page.grid("r" + "l" * (len(head) - 2) + "w", table)
    for line in filter(None, (rest, words.left_out(report))):
        page.text(line, "dim", indent=2)
    page.gap()


def _message(page: LightPage, message: Message, trace: str, *, every: bool) -> None:
    style = "bold yellow" if message.judgement.verdict == "unknown" or message.is_warning else "bold red"
    name = words.cause_name(message.judgement.verdict).upper()
    page.grid("lw", [((name, style), (words.sentence(message), "bold"))], indent=0)
    reasons = words.reasons(message)
    rows: list[list[Cell]] = [[("", "dim"), reason] for reason in (reasons if every else reasons[: words.MOST_REASONS])]
    if len(reasons) > len(rows):
        rows.append(["", (f"and {plural(len(reasons) - len(rows), 'more reason')} (--all)", "dim")])
    if rows:
        rows[0][0] = ("why", "dim")
    rows += [[("how sure", "dim"), words.sureness(message)], [("message", "dim"), words.facts(message)]]
    page.grid("lw", rows)
    _ledger(page, message)
    if message.findings:
        page.title("What to do")
    for number, finding in enumerate(message.findings):
        _finding(page, finding, len(finding.fixes) if every else MOST_FIXES[number > 0])
    _next(page, message, trace)


def _ledger(page: LightPage, message: Message) -> None:
    rows, scale, total = words.ledger_rows(message), words.scale_of(message), words.total_of(message)
    said = words.tried(message)
    if rows:
        page.title(words.ledger_title(message))
    elif said:
        page.gap()
    sizes = [row.bytes or 0 for row in rows]
    if scale and sum(sizes) > 0:
        width = page.width - 4
        page.spans(((row.glyph * num, row.style) for row, num in zip(rows, share_out(sizes, width), strict=True)), indent=2)
        _wanted(page, message, scale, width)
    table: list[tuple[Cell, ...]] = []
    for row in rows:
        name = f"{row.name} · {row.meaning}" if row.meaning else row.name
        size = format_bytes(row.bytes)
        table.append(((row.glyph, row.style), size, percent(row.share), name) if scale else (size, name))
    if scale and total and rows:
        table.append((("", ""), (format_bytes(total), "bold"), ("", ""), ("total", "bold")))
    page.grid("lrrw" if scale else "rw", table)
    if said:
        page.text(said, indent=2)


def _wanted(page: LightPage, message: Message, total: int, width: int) -> None:
    """The request on the scale of the bar above it."""
    wanted = message.fields.get("requested_bytes")
    if not isinstance(wanted, int) or wanted <= 0:
        return
    columns = min(max(round(wanted * width / total), 1), width)
    drawn = "=" * columns if wanted <= total else "=" * (width - 1) + ">"
    said = f" {format_bytes(wanted)} wanted "
    if columns + len(said) > width:  # no room behind it
        drawn, said = f"=={said}{drawn[2 + len(said) :]}", ""
    page.spans([(drawn, "bold"), (said.rstrip(), "bold")], indent=2)


def _finding(page: LightPage, finding: Finding, most_fixes: int) -> None:
    page.grid("lw", [((plain(finding.code), "cyan"), (plain(finding.title, LONGEST), "bold"))])
    fixes = words.remedies(finding)
    for number, fix in enumerate(fixes[:most_fixes], 1):
        _fix(page, number, fix)
    if len(fixes) > most_fixes:
        page.text(f"and {plural(len(fixes) - most_fixes, 'more remedy', 'more remedies')} (--all)", "dim", indent=4)


def _fix(page: LightPage, number: int, fix: Fix) -> None:
    applies = f" · {plain(fix.applicability, LONGEST)}" if fix.applicability else ""
    page.grid("lw", [((f"{number}.", "green"), plain(fix.title, LONGEST) + applies)], indent=4)
    for line in fix.change.splitlines():
        page.paste(plain(line), indent=8)
    if fix.caveat:
        page.text(words.caveat(fix), "dim", indent=8)


def _next(page: LightPage, message: Message, trace: str) -> None:
    steps = words.next_steps(message, trace)
    if steps:
        page.title("Next")
    for purpose, lines in steps:
        page.text(purpose + ":", indent=2)
        for line in lines.splitlines():
            page.paste(plain(line), indent=4)
