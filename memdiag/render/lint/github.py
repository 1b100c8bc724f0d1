"""Patterns found in source code as annotations of a pull request: workflow commands in the log of GitHub's runners."""

from __future__ import annotations

from memdiag.render.lint.places import place_of
from memdiag.render.support.look import PLAIN, Look
from memdiag.results.lint import LintReport

_LEVELS = {"critical": "error", "warning": "warning", "info": "notice"}


def render(report: LintReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns a line for each place, and one for each file that was not checked."""
    lines = []
    for finding in report.findings:
        path, line = place_of(finding)
        fix = finding.fixes[0]
        said = f"{finding.title}. Fix: {fix.title}. But: {fix.caveat}"
        where = f"file={_property(path)},line={line},title={_property(finding.code)}"
        lines.append(f"::{_LEVELS[finding.severity]} {where}::{_message(said)}\n")
    lines += [
        f"::warning file={_property(path)},title={_property(note.code)}::{_message(note.text)}\n"
        for path, note in zip(report.unchecked, report.notes, strict=True)
    ]
    return "".join(lines)


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
