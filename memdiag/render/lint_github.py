"""Habits found in source code as annotations of a pull request: the workflow commands that GitHub's runners read from a log."""

from __future__ import annotations

from memdiag.lint.report import LintReport
from memdiag.render.look import PLAIN, Look
from memdiag.render.places import place_of

_LEVELS = {"critical": "error", "warning": "warning", "info": "notice"}


def render(report: LintReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns a line for each place; nothing where nothing was found."""
    lines = []
    for finding in report.findings:
        path, line = place_of(finding)
        fix = finding.fixes[0]
        said = f"{finding.title}. Fix: {fix.title}. But: {fix.caveat}"
        where = f"file={_property(path)},line={line},title={_property(finding.code)}"
        lines.append(f"::{_LEVELS[finding.severity]} {where}::{_message(said)}\n")
    return "".join(lines)


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
