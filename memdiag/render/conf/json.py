"""Allocator settings for programs: keys as documented in docs/settings.md, ``schema_version`` 1."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from memdiag.render.analyze.json import as_json, finding_dict
from memdiag.render.support.look import PLAIN, Look
from memdiag.results.conf import ConfReport
from memdiag.settings.listing import Listing
from memdiag.settings.model import Key, version_text


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


def render_list(table: Listing, look: Look = PLAIN) -> str:  # noqa: ARG001 - as above
    """Returns the table as one JSON object."""
    shown = {
        "schema_version": table.schema_version,
        "torch_version": table.torch_version,
        "backends": [
            {"backend": backend, "variable": variable, "keys": [_key(key) for key in keys]} for backend, _, variable, keys in table.backends
        ],
        "variables": [{"name": v.name, "meaning": v.meaning, "range": v.range, "backends": list(v.backends)} for v in table.variables],
    }
    return json.dumps(as_json(shown), indent=2, allow_nan=False) + "\n"


def _key(key: Key) -> dict[str, Any]:
    return {
        "key": key.name,
        "type": key.kind,
        "meaning": key.meaning,
        "default": key.default,
        "range": key.range,
        "since": version_text(key.since),
        "until": version_text(key.until) if key.until else None,
        "replaced_by": key.replaced_by or None,
    }
