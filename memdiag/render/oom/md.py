"""Out-of-memory messages as GitHub-flavoured markdown, to paste into an issue.

The same texts and order as in a terminal, see words.py.
"""

from __future__ import annotations

from memdiag.render.oom import account, actions, many, words
from memdiag.render.support.amounts import percent
from memdiag.render.support.bar import stacked_bar
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.markdown import WIDTH, escape, fence, table
from memdiag.results.finding import Fix
from memdiag.results.oom import Message, OomReport
from memdiag.text import in_ascii, joined, phrase, plain
from memdiag.units import format_bytes
from memdiag.version import __version__

MOST_LINES = 30  # of the message itself


def render(
    report: OomReport,
    look: Look = PLAIN,
    *,
    every: bool = False,
    top: int = 10,
    verbose: bool = False,  # noqa: ARG001 - always: a page of markdown has room
) -> str:
    """Returns the report as markdown; of ``look``, only ``unicode`` is used.

    Args:
        report: The messages.
        look: The output device.
        every: Whether each message has a row, instead of groups.
        top: Rows in each list.
        verbose: Markdown always contains every reason and remedy.
    """
    lines: list[str] = []
    if not report.messages:
        lines += [
            f"## memdiag: {escape(phrase('oom.nothing'))}",
            "",
            *(f"{escape(line)}\n" for line in many.nothing(report)),
        ]
        lines += (
            [*(f"- {escape(example)}" for example in many.EXAMPLES), ""] if report.num_lines or not report.trace else []
        )
    else:
        lines += _messages(report, every=every, top=top)
    lines.append(f"<sub>memdiag {escape(__version__)}</sub>")
    text = "\n".join(lines) + "\n"
    return text if look.unicode else in_ascii(text)


def _messages(report: OomReport, *, every: bool, top: int) -> list[str]:
    lines = [f"## memdiag: {escape(words.heading(report.messages[0]))}", ""]
    if where := words.where(report.messages):
        lines += [escape(where), ""]
    lines += _message(report.messages[0], report.trace)
    if in_use := many.tables(report):
        lines += [escape(joined(in_use)), ""]
    if len(report.messages) > 1:
        head, rows, rest = many.overview(report, every=every, top=top)
        cells = [[escape(part) for part in row] for row in rows]
        lines += [f"### {escape(many.summary(report))}", "", *table([escape(name) for name in head], cells, (0,))]
        lines += [f"{escape(line)}\n" for line in (rest, many.omitted(report)) if line]
    if others := many.others(report.messages):
        title = escape(phrase("oom.others"))
        lines += [f"### {title}", "", *(f"- **{escape(name)}**: {escape(reason)}" for name, reason in others), ""]
    return lines


def _message(message: Message, trace: str) -> list[str]:
    lines = [f"**{escape(words.meaning(message))}** {escape(joined(words.reasons(message)))}", ""]
    lines += [escape(doubts), ""] if (doubts := words.doubts(message)) else []
    remedies = actions.remedies(message)
    if remedies:
        lines += [f"### {escape(phrase('oom.first'))}", "", *_fix(1, remedies[0].fix)]
    for section, members in actions.by_section(remedies[1:]).items():
        lines += [f"### {escape(section)}", ""]
        for number, remedy in enumerate(members, 1):
            lines += _fix(number, remedy.fix)
    if futile := actions.futile(message):
        lines += [
            f"### {escape(phrase('oom.futile'))}",
            "",
            *(f"- {escape(words.as_sentence(line))}" for line in futile),
            "",
        ]
    lines += _account(message)
    for number, (purpose, given) in enumerate(actions.next_steps(message, trace)):
        title = phrase("oom.then", purpose=purpose) if number else phrase("oom.next", purpose=purpose)
        lines += [f"### {escape(title)}", "", *fence([plain(line) for line in given.splitlines()]), ""]
    text = [plain(line) for line in message.text.splitlines()[:MOST_LINES]]
    summary = f"{escape(phrase('oom.facts'))}: {escape(words.facts(message))}"
    return [*lines, f"<details><summary>{summary}</summary>", "", *fence(text, "text"), "", "</details>", ""]


def _account(message: Message) -> list[str]:
    rows, scale, total = account.rows(message), account.scale_of(message), account.total_of(message)
    lines = [f"### {escape(account.title(message))}", ""] if rows else []
    if scale:
        drawn = stacked_bar([(row.glyph, row.style, row.bytes or 0) for row in rows], WIDTH)
        lines += [*fence([drawn.plain], "text"), ""]
    if rows:
        names = [f"`{row.glyph}` {escape(row.name)}" if scale else escape(row.name) for row in rows]
        cells = [
            (name, format_bytes(row.bytes), percent(row.share), escape(row.meaning))
            for name, row in zip(names, rows, strict=True)
        ]
        if scale and total is not None:
            cells.append((f"**{escape(phrase('oom.account.total'))}**", f"**{format_bytes(total)}**", "", ""))
        lines += table(("", *map(escape, (phrase("oom.table.bytes"), phrase("oom.table.share"))), ""), cells, (1, 2))
    if tried := account.tried(message):
        lines += [escape(tried), ""]
    return lines


def _fix(number: int, fix: Fix) -> list[str]:
    title, when = plain(fix.title), plain(fix.applicability)
    lines = [f"{number}. {escape(phrase('oom.fix.when', title=title, when=when) if when else title)}", ""]
    if fix.change:
        lines += [*("   " + line for line in fence([plain(line) for line in fix.change.splitlines()])), ""]
    if fix.caveat:
        lines += [f"   *{escape(words.caveat(fix))}*", ""]
    return lines
