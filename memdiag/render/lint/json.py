"""Habits found in source code for programs: keys as documented in docs/lint.md, ``schema_version`` 1."""

from __future__ import annotations

import json

from memdiag.render.support.json import as_json, finding_dict
from memdiag.render.support.look import PLAIN, Look
from memdiag.results.lint import LintReport


def render(report: LintReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the report as one JSON object, indented, with a newline at its end."""
    shown = {
        "schema_version": report.schema_version,
        "num_files": report.num_files,
        "num_ignored": report.num_ignored,
        "num_unchecked": len(report.unchecked),
        "findings": [finding_dict(finding) for finding in report.findings],
        "notes": [{"code": note.code, "text": note.text} for note in report.notes],
    }
    return json.dumps(as_json(shown), indent=2, allow_nan=False) + "\n"
