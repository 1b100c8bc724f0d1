"""Out-of-memory messages for people, in a terminal: the verdict first, then where the memory was, what to do, and what next.

One message takes about a screen. Many are grouped by cause; the first one, where it all began, is explained in full.
"""

from __future__ import annotations

from rich.text import Text

from memdiag.findings import Finding, Fix
from memdiag.oom.model import Message, OomReport
from memdiag.render import oom_words as words
from memdiag.render.bar import stacked_bar
from memdiag.render.look import PLAIN, Look
from memdiag.render.page import Page, indented, new_grid
from memdiag.render.text import plain
from memdiag.render.words import percent
from memdiag.units import format_bytes

LONGEST = 400  # characters of a text


def render(report: OomReport, look: Look = PLAIN, *, every: bool = False, top: int = 10) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns.

    Args:
        report: The messages.
        look: The place it is shown in.
        every: A row for each message, rather than for groups of them.
        top: Rows in each list.
    """
    page = Page(look)
    if not report.messages:
        _nothing(page, report)
        return page.finish()
    if len(report.messages) > 1:
        _overview(page, report, every=every, top=top)
    _message(page, report.messages[0])
    return page.finish()


def _nothing(page: Page, report: OomReport) -> None:
    page.text("No out-of-memory message was found.", "bold")
    for line in words.nothing(report):
        page.gap()
        page.text(line)
    for example in words.EXAMPLES:
        page.text(example, "dim", indent=2)


def _overview(page: Page, report: OomReport, *, every: bool, top: int) -> None:
    page.text(words.summary(report), "bold")
    page.gap()
    head, rows, rest = words.overview(report, every=every, top=top)
    grid = new_grid("r", *("l" for _ in head[1:]))
    grid.add_row(*(Text(title, style="bold") for title in head))
    for row in rows:
        grid.add_row(*row[:-1], Text(row[-1], style="dim"))
    page.add(indented(grid))
    if rest:
        page.text(rest, "dim", indent=2)
    page.gap()


def _message(page: Page, message: Message) -> None:
    grid = new_grid("l", "w")
    style = "bold yellow" if message.judgement.verdict == "unknown" or message.is_warning else "bold red"
    grid.add_row(Text(words.cause_name(message.judgement.verdict).upper(), style=style), Text(words.sentence(message), style="bold"))
    for reason in words.reasons(message):
        grid.add_row("", reason)
    grid.add_row(Text("how sure", style="dim"), Text(words.sureness(message)))
    grid.add_row(Text("message", style="dim"), Text(words.facts(message)))
    page.add(grid)
    _ledger(page, message)
    if message.findings:
        page.title("What to do")
    for finding in message.findings:
        _finding(page, finding)
    _next(page, message)


def _ledger(page: Page, message: Message) -> None:
    rows, total = words.ledger_rows(message)
    if not rows:
        page.gap()
    else:
        page.title(words.ledger_title(message))
    if rows and total:
        width = page.width - 4
        page.add(Text("  ").append_text(stacked_bar([(row.glyph, row.style, row.bytes or 0) for row in rows], width)))
        _wanted(page, message, total, width)
    grid = new_grid("l", "r", "r", "w")
    for row in rows:
        name = Text(row.name, overflow="fold").append(f" · {row.meaning}" if row.meaning else "", style="dim")
        grid.add_row(Text(row.glyph, style=row.style), format_bytes(row.bytes), percent(row.share), name)
    if rows and total is not None:
        grid.add_row("", Text(format_bytes(total), style="bold"), "", Text("total", style="bold"))
    page.add(indented(grid))
    if said := words.tried(message):
        page.text(said, indent=2)


def _wanted(page: Page, message: Message, total: int, width: int) -> None:
    """The request on the scale of the bar above it."""
    wanted = message.fields.get("requested_bytes")
    if isinstance(wanted, int) and 0 < wanted <= total:
        columns = max(round(wanted * width / total), 1)
        said = f"{format_bytes(wanted)} wanted"
        before = columns + 1 + len(said) <= width
        page.add(Text("  ").append("=" * columns, style="bold").append(f" {said}" if before else "", style="bold"))


def _finding(page: Page, finding: Finding) -> None:
    head = new_grid("l", "w")
    head.add_row(Text(plain(finding.code), style="cyan"), Text(plain(finding.title, LONGEST), style="bold", overflow="fold"))
    page.add(indented(head))
    for number, fix in enumerate(finding.fixes, 1):
        _fix(page, number, fix)


def _fix(page: Page, number: int, fix: Fix) -> None:
    grid = new_grid("l", "w")
    applies = f" ({plain(fix.applicability, LONGEST)})" if fix.applicability else ""
    grid.add_row(Text(f"{number}.", style="green"), Text(plain(fix.title, LONGEST) + applies, overflow="fold"))
    page.add(indented(grid, 4))
    if fix.change:
        page.paste(plain(fix.change), indent=7)
    if fix.caveat:
        page.text(f"but {plain(fix.caveat, LONGEST)}", "dim", indent=7)


def _next(page: Page, message: Message) -> None:
    steps = words.next_steps(message)
    if steps:
        page.title("Next")
    for purpose, line in steps:
        page.text(purpose + ":", indent=2)
        page.paste(plain(line), indent=4)
