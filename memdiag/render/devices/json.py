"""The simulated devices for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memdiag.phantom.profiles import Profile
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import Key, Layout, Shape


@dataclass(frozen=True)
class Devices:
    """Devices that ``memdiag record --phantom`` can simulate.

    Attributes:
        devices: One entry for each device.
    """

    devices: tuple[Profile, ...]


LAYOUT = Layout(
    name="devices",
    title="memdiag devices --json",
    meaning="Devices that memdiag can simulate.",
    version=1,
    root=Devices,
    shapes=(
        Shape(
            Profile,
            (
                Key(
                    "name",
                    lambda profile: profile.full_name,
                    str,
                    'Backend and name, as --phantom takes it: "cuda:h100-80g".',
                ),
                "backend",
                "product",
                "total_bytes",
                "context_bytes",
                "capacity_bytes",
                "figures",
                "sources",
                "estimates",
            ),
        ),
    ),
    has_program_version=False,
)


def render(profiles: Sequence[Profile], look: Look = PLAIN) -> str:  # noqa: ARG001 - every form is called alike
    """Returns the devices as one JSON object."""
    return LAYOUT.text(Devices(tuple(profiles)))
