"""The data of the HTML report, ready for JSON: the diagnosis, and what the page draws of each device."""

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
        labels, kinds, sites: Of each frame its short name and whose code it is, of each stack the frame that it is
        named after.
        codes: The lists that codes stand for: categories, lifetimes, phases, causes, actions.
        simulated: Curves under other policies and settings.
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
