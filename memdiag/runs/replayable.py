"""Chooses the device of a trace that a command simulates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from memdiag.trace.model import DeviceTrace, Trace


def choose_device(trace: Trace, number: int | None = None, say: Callable[[str], None] = lambda _: None) -> DeviceTrace:
    """Returns the device to simulate: that of a number, or the one that held most.

    Args:
        trace: The recording.
        number: The device; None: the one with the most memory.
        say: Receives one line if a device was chosen among several.

    Raises:
        MemdiagError: The trace has no such device, or no requests to replay.
    """
    have = ", ".join(str(each.device) for each in trace.devices) or phrase("errors.devices.none")
    if number is not None and all(each.device != number for each in trace.devices):
        raise MemdiagError(phrase("errors.no-device", device=str(number)), phrase("errors.devices", have=have))
    usable = [
        each
        for each in trace.devices
        if len(each.tensors) and each.num_events and (number is None or each.device == number)
    ]
    if not usable:
        raise MemdiagError(
            phrase("errors.no-allocations.state" if trace.num_tensors else "errors.no-allocations", path=trace.path),
            phrase("errors.from-beginning"),
        )
    chosen = max(usable, key=lambda each: each.most_held_bytes)
    if len(usable) > 1:
        most = format_bytes(chosen.most_held_bytes)
        say(phrase("progress.device.simulating", device=str(chosen.device), bytes=most, count=len(usable)))
    return chosen
