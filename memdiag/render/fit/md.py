"""The result of ``memdiag fit`` as Markdown, to paste into an issue."""

from __future__ import annotations

from memdiag.render.fit import words
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.markdown import code, escape, table
from memdiag.results.fit import FitReport
from memdiag.text import phrase, sentence


def render(report: FitReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all forms have the same signature
    """Returns the report as Markdown."""
    lines = [f"**{escape(sentence(said))}**  " for said in words.verdicts(report)]
    lines += [escape(sentence(said)) for said in words.closest(report)]
    lines += ["", code(report.command), ""]
    head = [*(escape(axis.name) for axis in report.axes), phrase("fit.head.allocated"), phrase("fit.head.reserved")]
    rows = [
        [
            *(escape(value) for value in row.values),
            *words.peaks(row.cell),
            *(escape(words.outcome(on)) for on in row.cell.on),
        ]
        for row in words.table_rows(report)
    ]
    lines += table([*head, *(escape(device.name) for device in report.devices)], rows, range(len(report.axes) + 2))
    if (found := words.front(report)) is not None:
        titles, points = found
        lines += ["", f"**{escape(phrase('fit.title.front'))}**", ""]
        lines += table([escape(title) for title in titles], [[escape(text) for text in point] for point in points], ())
    failed = [f"* {escape(report.label(cell.values))}: {code(cell.error)}" for cell in report.cells if cell.error]
    if failed:
        lines += [phrase("fit.errors"), "", *failed, ""]
    lines += [sentence(words.runs(report)), "", *(f"* {escape(sentence(note))}" for note in report.notes)]
    return "\n".join(lines) + "\n"
