"""Allocator settings for programs: keys as documented in docs/settings.md, ``schema_version`` 1."""

from __future__ import annotations

import json
from dataclasses import asdict

from memdiag.render.support.json import as_json, finding_dict
from memdiag.render.support.look import PLAIN, Look
from memdiag.results.conf import ConfReport


def render(report: ConfReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the report as one JSON object, indented, with a newline at its end."""
    shown = {
        "schema_version": report.schema_version,
        "backend": report.backend,
        "torch_version": report.torch_version,
        "checked_version": report.checked_version,
        "variable": report.variable,
        "text": report.text,
        "settings": [asdict(setting) for setting in report.settings],
        "findings": [finding_dict(finding) for finding in report.findings],
        "corrected": report.corrected,
        "line": report.line,
        "related": [{"name": name, "value": value, "meaning": meaning} for name, value, meaning in report.related],
    }
    return json.dumps(as_json(shown), indent=2, allow_nan=False) + "\n"
