"""The plan of an inference server as GitHub-flavoured markdown, to paste into an issue."""

from __future__ import annotations

from memdiag.render.serve_fit import words
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.markdown import escape, fence, table
from memdiag.results.serve_fit import ServeFitReport
from memdiag.text import in_ascii, phrase
from memdiag.units import format_bytes
from memdiag.version import __version__


def render(report: ServeFitReport, look: Look = PLAIN) -> str:
    """Returns the report as markdown; of ``look``, only ``unicode`` is used."""
    head = words.head()
    rows = [_filled(words.row(plan), len(head)) for plan in report.plans]
    lines = [f"## memdiag: {escape(words.title(report))}", "", escape(words.subject(report)), ""]
    lines += table([escape(cell) for cell in head], rows, range(len(head)))
    shown = words.shown(report)
    if shown is not None:
        lines += [f"### {escape(phrase('serve_fit.parts', count=shown.tp))}", ""]
        lines += [f"- {escape(name)}: {escape(size)} ({escape(basis)})" for name, size, basis in words.parts(shown)]
        size = format_bytes(shown.token_bytes)
        lines += ["", *([escape(phrase("serve_fit.token", size=size)), ""] if shown.token_bytes else [])]
    if shown is not None and shown.flags:
        lines += [f"### {escape(phrase('serve_fit.flags'))}", "", *fence([" ".join(shown.flags)]), ""]
        if shown.cache_flag:
            lines += [escape(phrase("serve_fit.cache-flag")), "", *fence([shown.cache_flag]), ""]
    else:
        lines += [escape(phrase("serve_fit.none", context=report.context)), ""]
    verify = [phrase("serve_fit.verify")] if shown is not None and shown.flags else []
    lines += [escape(note) + "\n" for note in (*report.notes, *verify)]
    lines.append(f"<sub>memdiag {escape(__version__)}</sub>")
    text = "\n".join(lines) + "\n"
    return text if look.unicode else in_ascii(text)


def _filled(cells: list[str], count: int) -> list[str]:
    return [escape(cell) for cell in cells] + [""] * (count - len(cells))
