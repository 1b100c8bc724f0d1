"""Out-of-memory messages in a terminal.

It has the cause, one remedy to try first, alternatives, the account of memory, and the next commands.

A report of one message usually has at most 25 lines; ``verbose`` shows everything. A report of many messages explains
the first one and groups all of them by cause in a table.
"""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.render.oom import account, actions, many, words
from memdiag.render.support.amounts import AmountRow, percent
from memdiag.render.support.line import wrap
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import Cell, TerminalPage
from memdiag.results.finding import Fix
from memdiag.results.oom import Message, OomReport
from memdiag.text import joined, phrase, plain
from memdiag.units import format_bytes

LONGEST = 400  # characters of a text
MOST_LINES = 25
LEAD_LINES = 3  # number of reasons below the heading
# Numbers of alternatives and further reasons; the first pair that stays within MOST_LINES is used.
FILLINGS = ((3, 2), (2, 2), (2, 1), (2, 0), (1, 1), (1, 0))
WITH_TRACE = 4  # number of reasons that a trace adds
MOST_OTHERS = 3  # number of other causes


def render(report: OomReport, look: Look = PLAIN, *, every: bool = False, top: int = 10, verbose: bool = False) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns.

    Args:
        report: The messages.
        look: The output device.
        every: Whether each message has a row, instead of groups; implies ``verbose``.
        top: Rows in each list.
        verbose: All reasons and remedies, and the whole account.
    """
    page = TerminalPage(look)
    if not report.messages:
        _nothing(page, report)
        return page.finish()
    if verbose or every:
        _verbose(page, report)
    else:
        page = _brief(look, report)
    if in_use := many.tables(report):
        page.gap()
        page.text(joined(in_use))
    if len(report.messages) > 1:
        _overview(page, report, every=every, top=top)
    return page.finish()


def _nothing(page: TerminalPage, report: OomReport) -> None:
    page.text(phrase("oom.nothing"), "bold")
    for line in many.nothing(report):
        page.gap()
        page.text(line)
    for example in many.EXAMPLES if report.num_lines or not report.trace else ():
        page.text(example, "dim", indent=2)


def _brief(look: Look, report: OomReport) -> TerminalPage:
    """Returns a page on the first message with as many alternatives and reasons as keep it short."""
    page = TerminalPage(look)
    for num_alternatives, num_reasons in FILLINGS:
        page = TerminalPage(look)
        _message(page, report, num_alternatives, max(num_reasons, WITH_TRACE if report.trace else 0))
        if page.num_lines <= MOST_LINES:
            break
    return page


def _message(page: TerminalPage, report: OomReport, num_alternatives: int, num_reasons: int) -> None:
    message = report.messages[0]
    num_printed = _heading(page, report.messages)
    remedies = actions.remedies(message)
    futile = actions.futile(message)
    if remedies:
        page.title(phrase("oom.first"))
        _first(page, remedies[0].fix)
    _alternatives(page, remedies[1 : 1 + num_alternatives])
    if futile:
        page.text(phrase("oom.futile"), "bold")
        for line in futile:
            page.text(words.as_sentence(line), indent=2)
    further = words.explanation(message)[num_printed:]
    _reasons(page, further[:num_reasons])
    rows = account.short_rows(message)
    if rows:
        page.title(account.title(message))
        _bars(page, rows)
    steps = actions.next_steps(message, report.trace)
    _next(page, steps[:1])
    hidden = [
        phrase("oom.more.fixes", count=len(remedies) - 1 - num_alternatives)
        if len(remedies) > 1 + num_alternatives
        else "",
        phrase("oom.more.reasons", count=len(further) - num_reasons) if len(further) > num_reasons else "",
        phrase("oom.more.steps", count=len(steps) - 1) if len(steps) > 1 else "",
        phrase("oom.more.account") if rows else "",
    ]
    if any(hidden):
        page.text(phrase("oom.more", what=joined(hidden, ", ")), "dim")


def _heading(page: TerminalPage, messages: Sequence[Message], *, with_doubts: bool = False) -> int:
    """Adds cause, place, decisive reasons and, unless certain, other causes; returns the number of reasons."""
    message = messages[0]
    style = "bold yellow" if message.judgement.verdict == "unknown" or message.is_warning else "bold red"
    page.grid("lw", [((words.heading(message), style), words.where(messages))], indent=0)
    sentences = words.explanation(message)
    lead = sentences[:1]
    for sentence in sentences[1:]:
        if len(wrap(joined([*lead, sentence]), page.width)) > LEAD_LINES:
            break
        lead.append(sentence)
    page.text(joined(lead))
    if (with_doubts or message.judgement.confidence != "high") and (doubts := words.doubts(message)):
        page.text(doubts, "dim")
    return len(lead)


def _first(page: TerminalPage, fix: Fix) -> None:
    page.text(words.as_sentence(plain(fix.title, LONGEST)), indent=2)
    for line in fix.change.splitlines():
        page.paste(plain(line), indent=4)
    note = joined([words.as_sentence(plain(fix.applicability, LONGEST)), words.caveat(fix)])
    if note:
        page.text(note, "dim", indent=4)


def _alternatives(page: TerminalPage, remedies: Sequence[actions.ShownRemedy]) -> None:
    for section, members in actions.by_section(remedies).items():
        page.text(section, "bold")
        for remedy in members:
            _fix(page, remedy.fix)


def _fix(page: TerminalPage, fix: Fix) -> None:
    title, when = plain(fix.title, LONGEST), plain(fix.applicability, LONGEST)
    page.text(phrase("oom.fix.when", title=title, when=when) if when else title, indent=2)
    for line in fix.change.splitlines():
        page.paste(plain(line), indent=4)


def _reasons(page: TerminalPage, reasons: Sequence[str]) -> None:
    if reasons:
        page.text(phrase("oom.why"), "bold")
    for reason in reasons:
        page.text(reason, indent=2)


def _bars(page: TerminalPage, rows: Sequence[AmountRow]) -> None:
    longest = min(max(page.width * 3 // 10, 10), 40)
    largest = max((row.share or 0 for row in rows), default=0) or 1
    table: list[tuple[Cell, ...]] = []
    for row in rows:
        columns = max(round((row.share or 0) / largest * longest), 1 if row.share else 0)
        table.append((row.name, format_bytes(row.bytes), (row.glyph * columns, row.style)))
    page.grid("wrl", table)


def _next(page: TerminalPage, steps: Sequence[tuple[str, str]]) -> None:
    for number, (purpose, lines) in enumerate(steps):
        page.text(phrase("oom.then", purpose=purpose) if number else phrase("oom.next", purpose=purpose), "bold")
        for line in lines.splitlines():
            page.paste(plain(line), indent=4)


def _verbose(page: TerminalPage, report: OomReport) -> None:
    message = report.messages[0]
    num_printed = _heading(page, report.messages, with_doubts=True)
    remedies = actions.remedies(message)
    if remedies:
        page.title(phrase("oom.first"))
        _first(page, remedies[0].fix)
    for section, members in actions.by_section(remedies[1:]).items():
        page.title(section)
        for remedy in members:
            _first(page, remedy.fix)
    if futile := actions.futile(message):
        page.title(phrase("oom.futile"))
        for line in futile:
            page.text(words.as_sentence(line), indent=2)
    further = words.explanation(message)[num_printed:]
    page.title(phrase("oom.why"))
    for reason in (*further, account.tried(message)):
        if reason:
            page.text(reason, indent=2)
    page.grid("lw", [((phrase("oom.facts"), "dim"), words.facts(message))])
    if rows := account.rows(message):
        page.title(account.title(message))
        _whole_account(page, message, rows)
    steps = actions.next_steps(message, report.trace)
    if steps:
        page.gap()
    _next(page, steps)


def _whole_account(page: TerminalPage, message: Message, rows: Sequence[AmountRow]) -> None:
    scale, total = account.scale_of(message), account.total_of(message)
    if not scale:
        page.grid("rw", [(format_bytes(row.bytes), row.name) for row in rows])
        return
    requested = account.request_size(message)
    if requested:
        rows = [*rows, AmountRow(phrase("oom.account.request"), requested, requested / scale, "", "=", "bold")]
    longest = min(max(page.width // 5, 10), 40)
    table: list[tuple[Cell, ...]] = []
    for row in rows:
        name = phrase("oom.account.basis", what=row.name, basis=row.meaning) if row.meaning else row.name
        columns = max(round(min(row.share or 0, 1) * longest), 1 if row.share else 0)
        drawn = row.glyph * columns + (">" if (row.share or 0) > 1 else "")
        table.append((name, format_bytes(row.bytes), percent(row.share), (drawn, row.style)))
    if total:
        table.append(((phrase("oom.account.total"), "bold"), (format_bytes(total), "bold"), "", ""))
    page.grid("wrrl", table)


def _overview(page: TerminalPage, report: OomReport, *, every: bool, top: int) -> None:
    head, rows, rest = many.overview(report, every=every, top=top, width=page.width)
    if len(rows) > 1:  # one row would repeat the heading
        page.title(many.summary(report))
        table: list[list[Cell]] = [[(title, "bold") for title in head]]
        table += [[*row[:-1], (row[-1], "dim")] for row in rows]
        page.grid("r" + "l" * (len(head) - 2) + "w", table)
    for line in filter(None, (rest, many.omitted(report))):
        page.text(line, "dim", indent=2)
    if others := many.others(report.messages):
        page.title(phrase("oom.others"))
        shown = others if every else others[:MOST_OTHERS]
        page.grid("lw", [((str(name).upper(), "bold"), reason) for name, reason in shown])
