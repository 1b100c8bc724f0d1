"""The table of all allocator settings for programs: keys as documented in docs/settings.md, ``schema_version`` 1."""

from __future__ import annotations

import json
from typing import Any

from memdiag.render.support.json import as_json
from memdiag.render.support.look import PLAIN, Look
from memdiag.settings.listing import Listing
from memdiag.settings.model import Key, version_text


def render(table: Listing, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the table as one JSON object."""
    shown = {
        "schema_version": table.schema_version,
        "torch_version": table.torch_version,
        "backends": [
            {"backend": backend, "variable": variable, "keys": [_key(key) for key in keys]}
            for backend, _, variable, keys in table.backends
        ],
        "variables": [
            {"name": v.name, "meaning": v.meaning, "range": v.range, "backends": list(v.backends)}
            for v in table.variables
        ],
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
