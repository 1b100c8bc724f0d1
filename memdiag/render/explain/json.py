"""Pages of the documentation for programs: keys as in docs/explain.md, ``schema_version`` 1."""

from __future__ import annotations

import json
from collections.abc import Sequence

from memdiag.manual import Page
from memdiag.render.support.look import PLAIN, Look


def render(pages: Sequence[Page], look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the pages as one JSON object (docs/explain.md)."""
    shown = [{"name": page.name, "title": page.title, "text": page.text} for page in pages]
    return json.dumps({"schema_version": 1, "pages": shown}, indent=2) + "\n"
