"""The simulated devices as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from memdiag.phantom.profiles import Profile
from memdiag.render.support.look import PLAIN, Look


def render(profiles: Sequence[Profile], look: Look = PLAIN) -> str:  # noqa: ARG001 - every form is called alike
    """Returns the devices as JSON."""
    devices = [
        {
            "name": profile.full_name,
            "backend": profile.backend,
            "product": profile.product,
            "total_bytes": profile.total_bytes,
            "context_bytes": profile.context_bytes,
            "capacity_bytes": profile.capacity_bytes,
            "figures": dict(profile.figures),
            "sources": dict(profile.sources),
            "estimates": dict(profile.estimates),
        }
        for profile in profiles
    ]
    return json.dumps({"schema_version": 1, "devices": devices}, indent=2) + "\n"
