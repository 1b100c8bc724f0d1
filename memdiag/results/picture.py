"""The data of the HTML report, ready for JSON: the diagnosis and the drawing data of each device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memdiag.results.report import Report


@dataclass(frozen=True)
class Picture:
    """The data of a page.

    Attributes:
        report: The diagnosis.
        devices: One dict for each device.
        frames, stacks, strings, modules: Texts and call stacks that the devices refer to by number.
        labels, kinds, sites: The short name and the code origin of each frame, and for each stack the frame it is named
            after.
        codes: Values of coded columns: categories, lifetimes, phases, causes, actions.
        simulated: Curves with other policies and settings.
    """

    report: Report
    devices: tuple[dict[str, Any], ...]
    frames: tuple[str, ...]
    stacks: tuple[tuple[int, ...], ...]
    strings: tuple[str, ...]
    modules: tuple[str, ...]
    labels: tuple[str, ...]
    kinds: tuple[int, ...]
    sites: tuple[int, ...]
    codes: dict[str, list[str]]
    simulated: tuple[dict[str, Any], ...] = ()
