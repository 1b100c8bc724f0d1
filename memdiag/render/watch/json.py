"""A reading of ``memdiag watch`` as one line of JSON."""

from __future__ import annotations

import json

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape
from memdiag.results.watch import WatchedDevice, WatchedSite, WatchReading

LAYOUT = JsonLayout(
    name="watch",
    title="memdiag watch --json",
    meaning="The memory of a running process at one moment; one line for each reading.",
    version=1,
    root=WatchReading,
    shapes=(Shape(WatchReading), Shape(WatchedDevice), Shape(WatchedSite)),
)


def render(reading: WatchReading, look: Look = PLAIN) -> str:  # noqa: ARG001 - all forms have the same signature
    """Returns the reading as one line."""
    return json.dumps(LAYOUT.as_dict(reading), separators=(",", ":"), allow_nan=False) + "\n"
