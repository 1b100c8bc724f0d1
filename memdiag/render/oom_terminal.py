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
    found = words.groups(report.messages)
    if len(report.messages) > 1:
        _overview(page, report, found, every=every, top=top)
    _message(page, found[0].first)
    return page.finish()


def _nothing(page: Page, report: OomReport) -> None:
    page.text("No out-of-memory message was found.", "bold")
    page.text(f"Looked at {words.looked_at(report)}.")


def _overview(page: Page, report: OomReport, found: list[words.Group], *, every: bool, top: int) -> None:
    page.text(words.summary(report), "bold")
    page.gap()
    grid = new_grid("r", "l", "l", "l", "w")
    rows = [words.Group((message,)) for message in report.messages] if every else found
    grid.add_row(*(Text(title, style="bold") for title in ("times", "ranks", "cause", "wanted", "first")))
    for group in rows if every else rows[:top]:
        members = group.messages
        cells = (f"{group.times:,}", words.ranks(m.rank for m in members), words.cause_name(group.first.judgement.verdict))
        grid.add_row(*cells, words.wanted_range(members), words.place(group.first))
    page.add(indented(grid))
    page.gap()


def _message(page: Page, message: Message) -> None:
    grid = new_grid("l", "w")
    label = words.cause_name(message.judgement.verdict).upper()
    grid.add_row(
        Text(label, style=words.CAUSE_STYLES.get(message.judgement.verdict, "bold red")), Text(words.sentence(message), style="bold")
    )
    for reason in words.reasons(message):
        grid.add_row("", reason)
    grid.add_row("", Text(f"How sure: {words.sureness(message)}", style="dim"))
    page.add(grid)
    page.gap()
    page.text(words.facts(message), "dim", indent=2)
    _ledger(page, message)
    if message.findings:
        page.title("What to do")
    for finding in message.findings:
        _finding(page, finding)


def _ledger(page: Page, message: Message) -> None:
    rows, total = words.ledger_rows(message.ledger)
    if rows or total:
        page.title(words.ledger_title(message))
        if total and rows:
            page.add(Text("  ").append_text(stacked_bar([(row.glyph, row.style, row.bytes or 0) for row in rows], page.width - 4)))
        grid = new_grid("l", "l", "r", "r", "w")
        for row in rows:
            size = format_bytes(row.bytes)
            grid.add_row(Text(row.glyph, style=row.style), row.name, size, words.share(row), Text(row.meaning, style="dim"))
        if total:
            grid.add_row("", Text("total", style="bold"), Text(format_bytes(total.bytes), style="bold"), "", "")
        page.add(indented(grid))
    if said := words.tried(message):
        page.text(said, indent=2)


def _finding(page: Page, finding: Finding) -> None:
    page.gap()
    page.text(f"{plain(finding.code)}  {plain(finding.title, LONGEST)}", "bold", indent=2)
    for number, fix in enumerate(finding.fixes, 1):
        _fix(page, number, fix)


def _fix(page: Page, number: int, fix: Fix) -> None:
    grid = new_grid("l", "w")
    applies = f" ({plain(fix.applicability, LONGEST)})" if fix.applicability else ""
    grid.add_row(Text(f"{number}.", style="green"), plain(fix.title, LONGEST) + applies)
    page.add(indented(grid, 4))
    if fix.change:
        page.paste(plain(fix.change), indent=8)
    if fix.caveat:
        page.text("but " + plain(fix.caveat, LONGEST), "dim", indent=8)
