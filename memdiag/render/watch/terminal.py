"""A reading of ``memdiag watch`` as a screen of a terminal."""

from __future__ import annotations

import time

from memdiag.render.support.bar import stacked_bar
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import Cell, TerminalPage
from memdiag.results.watch import WatchedDevice, WatchReading
from memdiag.text import joined, phrase, plain
from memdiag.units import format_bytes

_GLYPHS = {
    "tensors": ("█", "green"),
    "pending": ("▓", "cyan"),
    "cached": ("▒", "yellow"),
    "outside": ("▚", "magenta"),
    "free": ("░", ""),
}


def render(reading: WatchReading, look: Look = PLAIN) -> str:
    """Returns the reading as text of ``look.width`` columns."""
    page = TerminalPage(look)
    page.text(plain(_head(reading)), "bold")
    if reading.is_late:
        page.text(phrase("watch.late"), "yellow")
    elif not reading.devices:
        page.gap()
        page.text(phrase("watch.no-device"))
    for device in reading.devices:
        _device(page, device)
    _host(page, reading)
    _sites(page, reading)
    return page.finish()


def _head(reading: WatchReading) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(reading.time))
    parts = [
        phrase("watch.head", pid=f"{reading.pid}", torch=reading.torch_version),
        "" if reading.rank is None else phrase("watch.rank", rank=reading.rank),
        phrase("watch.steps.unknown") if reading.steps is None else phrase("watch.steps", steps=reading.steps),
        "" if reading.steps_per_minute is None else phrase("watch.rate", rate=f"{reading.steps_per_minute:,.0f}"),
        clock,
    ]
    return joined([str(part) for part in parts], " · ")


def _device(page: TerminalPage, device: WatchedDevice) -> None:
    page.title(device.device, plain(f"{device.name}, {format_bytes(device.total_bytes)}"))
    parts = device.parts
    if parts is not None:
        drawn = [(*_GLYPHS[name], max(size, 0)) for name, size in parts.items()]
        page.line(stacked_bar(drawn, page.width - 4), indent=2)
    rows: list[list[Cell]] = []
    for name, size in _rows(device):
        glyph, style = _GLYPHS.get(name, (" ", ""))
        rows.append([(glyph if parts is not None else " ", style), phrase(f"watch.part.{name}"), format_bytes(size)])
    page.grid("llr", rows)
    page.text(_limit(device), indent=2)
    page.text(_growth(device), "yellow" if (device.growth_bytes_per_minute or 0) > 0 else "", indent=2)
    page.text(
        phrase(
            "watch.peaks",
            reserved=format_bytes(device.peak_reserved_bytes),
            allocated=format_bytes(device.peak_allocated_bytes),
            retries=_number(device.num_retries),
            ooms=_number(device.num_ooms),
        ),
        indent=2,
    )


def _rows(device: WatchedDevice) -> list[tuple[str, int | None]]:
    """Returns the parts of the card, or what is known of them."""
    if device.parts is not None:
        return list(device.parts.items())
    return [("tensors", device.allocated_bytes), ("active", device.active_bytes), ("reserved", device.reserved_bytes)]


def _limit(device: WatchedDevice) -> str:
    return phrase(
        "watch.limit" if device.limit_bytes < device.total_bytes else "watch.distance",
        distance=format_bytes(device.distance_bytes),
        limit=format_bytes(device.limit_bytes),
        reserved=format_bytes(device.reserved_bytes),
    )


def _growth(device: WatchedDevice) -> str:
    growth = device.growth_bytes_per_minute
    if growth is None:
        return phrase("watch.growth.unknown")
    if not growth:
        return phrase("watch.growth.none")
    minutes = device.minutes_left
    if minutes is None:
        return phrase("watch.growth", growth=_signed(growth))
    return phrase("watch.growth.full", growth=_signed(growth), minutes=f"{minutes:,.0f}")


def _signed(size: int) -> str:
    return f"+{format_bytes(size)}" if size > 0 else format_bytes(size)


def _number(value: int | None) -> str:
    return phrase("vocabulary.unknown") if value is None else f"{value:,}"


def _host(page: TerminalPage, reading: WatchReading) -> None:
    page.title(phrase("watch.host"))
    rows: list[list[Cell]] = [[phrase("watch.host.process"), format_bytes(reading.host_bytes)]]
    if reading.children_bytes:
        rows.append([phrase("watch.host.children"), format_bytes(reading.children_bytes)])
    if reading.host_limit_bytes is not None:
        rows.append([phrase("watch.host.limit"), format_bytes(reading.host_limit_bytes)])
        rows.append([phrase("watch.host.used"), format_bytes(reading.host_used_bytes)])
    page.grid("lr", rows)


def _sites(page: TerminalPage, reading: WatchReading) -> None:
    if not reading.history:
        page.gap()
        page.text(phrase("watch.sites.off"))
        return
    page.title(phrase("watch.sites"))
    if not reading.sites:
        page.text(phrase("watch.sites.none"), indent=2)
        return
    rows: list[list[Cell]] = [
        [
            format_bytes(site.bytes),
            phrase("watch.blocks", count=site.num_blocks),
            plain(site.name) or phrase("watch.sites.older"),
        ]
        for site in reading.sites
    ]
    page.grid("rrw", rows)
