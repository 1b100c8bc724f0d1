"""The simulated devices as a table: one line a device."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.phantom.profiles import Profile
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import TerminalPage
from memdiag.text import phrase
from memdiag.units import format_bytes


def render(profiles: Sequence[Profile], look: Look = PLAIN) -> str:
    """Returns the table, with ~ before a figure that is an estimate, and how to use a device."""
    rows: list[tuple[str, ...]] = [
        tuple(phrase(f"devices.head.{head}") for head in ("device", "room", "total", "product"))
    ]
    for profile in profiles:
        mark = "~" if "total" in profile.estimates or "context" in profile.estimates else ""
        total = "~" if "total" in profile.estimates else ""
        rows.append(
            (
                profile.full_name,
                mark + format_bytes(profile.capacity_bytes),
                total + format_bytes(profile.total_bytes),
                profile.product,
            )
        )
    page = TerminalPage(Look(width=look.width))
    page.grid("lrrw", rows, indent=0)
    lines = [
        *page.finish().splitlines(),
        "",
        phrase("devices.estimate", command="memdiag devices DEVICE"),
        phrase("devices.use", command="memdiag record --phantom npu:910b-64g -- python train.py"),
        phrase("devices.capacity", option="--phantom npu:910b-64g,capacity=30GiB"),
    ]
    return "\n".join(lines) + "\n"
