"""Everything known about simulated devices, with sources."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.render.support.look import PLAIN, Look
from memdiag.results.devices import Devices, SimulatedDevice
from memdiag.text import phrase
from memdiag.units import format_bytes


def render(found: Devices, look: Look = PLAIN) -> str:  # noqa: ARG001 - every form is called alike
    """Returns a paragraph on each device."""
    return "\n".join(line for device in found.devices for line in _paragraph(device)) + "\n"


def _paragraph(device: SimulatedDevice) -> Iterator[str]:
    figures: dict[str, str] = {
        "total": format_bytes(device.total_bytes),
        "context": format_bytes(device.context_bytes),
    }
    if device.context_error_bytes:
        figures["context"] += f" ± {format_bytes(device.context_error_bytes)}"
    figures |= {name: str(value) for name, value in device.figures.items()}
    facts = {"name": device.name, "product": device.product, "bytes": format_bytes(device.capacity_bytes)}
    yield phrase("devices.title", **facts)
    for name, value in figures.items():
        yield f"  {name} {phrase('devices.estimated', value=value) if name in device.estimates else value}"
    for name, text in device.sources.items():
        yield f"  {phrase('devices.source', name=name, text=text)}"
    for name, text in device.estimates.items():
        yield f"  {phrase('devices.why', name=name, text=text)}"
    yield ""
