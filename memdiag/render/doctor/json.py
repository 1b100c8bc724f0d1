"""What can be recorded on a machine, for programs: keys as in docs/doctor.md, ``schema_version`` 1."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from memdiag.render.support.look import PLAIN, Look

if TYPE_CHECKING:
    from memdiag.recorder.machine import Python
    from memdiag.results.conf import ConfReport


def render(pythons: list[Python], settings: list[ConfReport], look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the report as one JSON object."""
    from memdiag.version import __version__

    content = {
        "schema_version": 1,
        "memdiag_version": __version__,
        "pythons": [asdict(python) for python in pythons],
        "settings": [asdict(report) for report in settings],
    }
    return json.dumps(content, indent=2, default=str) + "\n"
