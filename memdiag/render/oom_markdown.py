"""Out-of-memory messages as GitHub-flavoured markdown, to paste into an issue. The same rows as in a terminal, see oom_words."""

from __future__ import annotations

from memdiag import __version__
from memdiag.findings import Finding, Fix
from memdiag.oom.model import Message, OomReport
from memdiag.render import oom_words as words
from memdiag.render.bar import stacked_bar
from memdiag.render.look import PLAIN, Look
from memdiag.render.markdown import WIDTH, escape, fence, table
from memdiag.render.text import in_ascii, plain
from memdiag.render.words import percent
from memdiag.units import format_bytes

MOST_LINES = 30  # of the message itself


def render(report: OomReport, look: Look = PLAIN, *, every: bool = False, top: int = 10) -> str:
    """Returns the report as markdown; of ``look`` only ``unicode`` counts.

    Args:
        report: The messages.
        look: The place it goes to.
        every: A row for each message, rather than for groups of them.
        top: Rows in each list.
    """
    lines: list[str] = []
    if not report.messages:
        lines += ["## memdiag: no out-of-memory message", "", *(f"{escape(line)}\n" for line in words.nothing(report))]
        lines += [*(f"- {escape(example)}" for example in words.EXAMPLES), ""] if report.num_lines or not report.trace else []
    else:
        lines += _messages(report, every=every, top=top)
    lines.append(f"<sub>memdiag {escape(__version__)}</sub>")
    text = "\n".join(lines) + "\n"
    return text if look.unicode else in_ascii(text)


def _messages(report: OomReport, *, every: bool, top: int) -> list[str]:
    first = report.messages[0]
    lines = [f"## memdiag: {words.cause_name(first.judgement.verdict).upper()}", ""]
    if len(report.messages) > 1:
        head, rows, rest = words.overview(report, every=every, top=top)
        lines += [f"**{escape(words.summary(report))}**", "", *table(head, [[escape(part) for part in row] for row in rows], (0,))]
        lines += [f"{escape(line)}\n" for line in (rest, words.left_out(report)) if line]
        lines += ["### The first one", ""]
    lines += _message(first, report.trace, every=every)
    if others := words.others(report.messages):
        lines += ["### Other causes", "", *(f"- **{escape(name)}**: {escape(reason)}" for name, reason in others), ""]
    return lines


def _message(message: Message, trace: str, *, every: bool) -> list[str]:
    why = " ".join(words.reasons(message, 0 if every else words.MOST_REASONS))
    lines = [f"**{escape(words.sentence(message))}** {escape(why)}", ""]
    lines += [f"How sure: {escape(words.sureness(message))}", "", f"*{escape(words.facts(message))}*", ""]
    rows, scale, total = words.ledger_rows(message), words.scale_of(message), words.total_of(message)
    if rows:
        lines += [f"### {words.ledger_title(message)}", ""]
        if scale:
            drawn = stacked_bar([(row.glyph, row.style, row.bytes or 0) for row in rows], WIDTH)
            lines += [*fence([drawn.plain], "text"), ""]
        cells = [
            (
                f"`{row.glyph}` {escape(row.name)}" if scale else escape(row.name),
                format_bytes(row.bytes),
                percent(row.share),
                escape(row.meaning),
            )
            for row in rows
        ]
        if scale and total is not None:
            cells.append(("**total**", f"**{format_bytes(total)}**", "", ""))
        lines += table(("", "bytes", "share", ""), cells, (1, 2))
    if said := words.tried(message):
        lines += [escape(said), ""]
    if message.findings:
        lines += ["### What to do", ""]
    for finding in message.findings:
        lines += _finding(finding)
    steps = words.next_steps(message, trace)
    lines += ["### Next", ""] if steps else []
    for purpose, given in steps:
        lines += [f"{escape(purpose)}:", "", *fence([plain(line) for line in given.splitlines()]), ""]
    text = [plain(line) for line in message.text.splitlines()[:MOST_LINES]]
    return [*lines, "<details><summary>the message</summary>", "", *fence(text, "text"), "", "</details>", ""]


def _finding(finding: Finding) -> list[str]:
    lines = [f"#### {escape(finding.code)} {escape(finding.title)}", ""]
    for number, fix in enumerate(words.remedies(finding), 1):
        lines += _fix(number, fix)
    return lines


def _fix(number: int, fix: Fix) -> list[str]:
    applies = f" · {escape(fix.applicability)}" if fix.applicability else ""
    lines = [f"{number}. {escape(fix.title)}{applies}", ""]
    if fix.change:
        lines += [*("   " + line for line in fence([plain(line) for line in fix.change.splitlines()])), ""]
    if fix.caveat:
        lines += [f"   *{escape(words.caveat(fix))}*", ""]
    return lines
