"""The simulated devices as a table: one line per device."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import TerminalPage
from memdiag.results.devices import Devices
from memdiag.text import phrase
from memdiag.units import format_bytes


def render(found: Devices, look: Look = PLAIN) -> str:
    """Returns the table, with ~ before estimated figures, and how to use a device."""
    rows: list[tuple[str, ...]] = [
        tuple(phrase(f"devices.head.{head}") for head in ("device", "room", "total", "product"))
    ]
    for device in found.devices:
        is_estimate = bool({"total", "context"} & set(device.estimates)) or device.context_error_bytes > 0
        mark = "~" if is_estimate else ""
        total = "~" if "total" in device.estimates else ""
        rows.append(
            (
                device.name,
                mark + format_bytes(device.capacity_bytes),
                total + format_bytes(device.total_bytes),
                device.product,
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
