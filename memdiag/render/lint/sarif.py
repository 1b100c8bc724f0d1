"""Patterns found in source code as SARIF 2.1.0, the format that code hosts and editors read."""

from __future__ import annotations

import json
from pathlib import PurePath
from urllib.parse import quote

from memdiag.render.lint.places import place_of
from memdiag.render.support.json import as_json
from memdiag.render.support.look import PLAIN, Look
from memdiag.results.finding import Finding
from memdiag.results.lint import LintReport
from memdiag.version import __version__

_LEVELS = {"critical": "error", "warning": "warning", "info": "note"}


def render(report: LintReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns one run: each rule, each place as a result, unreadable files as notifications."""
    first = {finding.code: finding for finding in reversed(report.findings)}
    codes = sorted(first)
    run = {
        "tool": {
            "driver": {"name": "memdiag", "version": __version__, "rules": [_rule(first[code]) for code in codes]}
        },
        "results": [_result(finding, codes.index(finding.code)) for finding in report.findings],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "warning", "message": {"text": note.text}} for note in report.notes
                ],
            }
        ],
        "columnKind": "unicodeCodePoints",
    }
    sarif = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(as_json(sarif), indent=2, allow_nan=False) + "\n"


def _rule(finding: Finding) -> dict[str, object]:
    fix = finding.fixes[0]
    return {
        "id": finding.code,
        "shortDescription": {"text": finding.title},
        "help": {"text": f"{fix.title}. For: {fix.applicability}. But: {fix.caveat}."},
        "defaultConfiguration": {"level": _LEVELS[finding.severity]},
    }


def _result(finding: Finding, rule: int) -> dict[str, object]:
    path, line = place_of(finding)
    # Relative paths remain relative to the tool's working directory, as the format requires.
    uri = PurePath(path).as_uri() if PurePath(path).is_absolute() else quote(PurePath(path).as_posix())
    region = {"startLine": line, "snippet": {"text": str(finding.evidence[0].value)}}
    return {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.title},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}],
    }
