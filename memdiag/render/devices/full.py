"""Everything known about simulated devices, with sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memdiag.phantom.profiles import Profile
from memdiag.render.support.look import PLAIN, Look
from memdiag.text import phrase
from memdiag.units import format_bytes


def render(profiles: Sequence[Profile], look: Look = PLAIN) -> str:  # noqa: ARG001 - every form is called alike
    """Returns a paragraph on each device."""
    return "\n".join(line for profile in profiles for line in _paragraph(profile)) + "\n"


def _paragraph(profile: Profile) -> Iterator[str]:
    figures: dict[str, str] = {
        "total": format_bytes(profile.total_bytes),
        "context": format_bytes(profile.context_bytes),
    }
    figures |= {name: str(value) for name, value in profile.figures.items()}
    facts = {"name": profile.full_name, "product": profile.product, "bytes": format_bytes(profile.capacity_bytes)}
    yield phrase("devices.title", **facts)
    for name, value in figures.items():
        yield f"  {name} {phrase('devices.estimated', value=value) if name in profile.estimates else value}"
    for name, text in profile.sources.items():
        yield f"  {phrase('devices.source', name=name, text=text)}"
    for name, text in profile.estimates.items():
        yield f"  {phrase('devices.why', name=name, text=text)}"
    yield ""
