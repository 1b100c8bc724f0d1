"""The memory account of an inference server as GitHub-flavoured markdown, to paste into an issue."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.render.serving import words
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.markdown import code, escape, table
from memdiag.results.finding import Fix
from memdiag.results.serving import ServingFailure, ServingReport
from memdiag.text import in_ascii, phrase
from memdiag.version import __version__

_ROW = 60  # columns of the use over time


def render(report: ServingReport, look: Look = PLAIN) -> str:
    """Returns the report as markdown; of ``look``, only ``unicode`` is used."""
    lines = [f"## memdiag: {escape(words.title(report))}", ""]
    if not report.cards:
        lines += [escape(phrase("serving.no-figures")), ""]
    head = [escape(phrase(f"serving.head.{name}")) for name in ("part", "size", "share", "from")]
    for card, others in words.groups(report):
        lines += [f"**{escape(words.card_title(card))}**: {escape(words.whole(card))}", ""]
        lines += table(head, [[escape(cell) for cell in row] for row in words.rows(card)], (1, 2))
        if others:
            lines += [escape(phrase("serving.same", count=len(others), who=", ".join(others))), ""]
    if found := words.requests(report):
        lines += [f"### {escape(phrase('serving.requests'))}", "", *(f"- {escape(line)}" for line in found), ""]
    if report.use is not None:
        lines += [f"### {escape(phrase('serving.use', samples=report.use.num_samples))}", ""]
        if row := words.use_row(report.use, _ROW):
            lines.append(f"- {escape(words.use_over_time(report.use))}: {code(row)}")
        lines += [*(f"- {escape(line)}" for line in words.use(report.use)), ""]
        lines += [escape(words.use_means(report.use)), "", *_fixes(report.use.fixes)]
    if settings := words.settings(report):
        lines += [f"{escape(phrase('serving.settings'))}: {code(settings)}", ""]
    if report.failure is not None:
        lines += _failure(report.failure)
    if report.is_truncated:
        lines += [escape(phrase("serving.truncated")), ""]
    lines.append(f"<sub>memdiag {escape(__version__)}</sub>")
    text = "\n".join(lines) + "\n"
    return text if look.unicode else in_ascii(text)


def _failure(failure: ServingFailure) -> list[str]:
    lines = [f"### {escape(phrase('serving.failure', line=failure.line))}", "", code(failure.text), ""]
    if failure.missing_bytes is not None:
        lines += [escape(words.missing(failure.missing_bytes)), ""]
    if failure.fixes:
        lines += [f"### {escape(phrase('serving.fits'))}", ""]
    return [*lines, *_fixes(failure.fixes)]


def _fixes(fixes: Sequence[Fix]) -> list[str]:
    lines = [
        f"{number}. {escape(fix.title)}: {code(fix.change)}. {escape(fix.caveat)}"
        for number, fix in enumerate(fixes, 1)
    ]
    return [*lines, ""] if lines else []
