"""The simulated devices for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout
from memdiag.results.devices import Devices

LAYOUT = JsonLayout(
    name="devices",
    title="memdiag devices --json",
    meaning="Devices that memdiag can simulate.",
    version=1,
    root=Devices,
    has_program_version=False,
)


def render(found: Devices, look: Look = PLAIN) -> str:  # noqa: ARG001 - every form is called alike
    """Returns the devices as one JSON object."""
    return LAYOUT.text(found)
