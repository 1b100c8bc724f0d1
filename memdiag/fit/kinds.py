"""Kinds of devices: devices that differ only in the size of their memory need one run, which is replayed for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memdiag.errors import MemdiagError
from memdiag.phantom.profiles import Profile, choose
from memdiag.results.fit import FitDevice
from memdiag.text import phrase

_CLOCK = "_mhz"  # figures that change times only: cards of one chip differ in them
UNLIMITED = "4096GiB"  # of memory while recording: every configuration runs to its end


@dataclass(frozen=True)
class DeviceKind:
    """Devices that run the same code.

    Attributes:
        recorded_on: The device that runs are recorded on, with unlimited memory.
        devices: The devices.
    """

    recorded_on: str
    devices: tuple[FitDevice, ...]

    @property
    def backend(self) -> str:
        """The backend: cuda or npu."""
        return self.recorded_on.partition(":")[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the devices."""
        return tuple(device.name for device in self.devices)


def kinds_of(texts: Sequence[str]) -> tuple[DeviceKind, ...]:
    """Returns the kinds of the given devices, in their order.

    Args:
        texts: Devices as ``--phantom`` takes them.

    Raises:
        MemdiagError: A device is unknown, or given twice.
    """
    found: dict[tuple[object, ...], list[tuple[str, Profile]]] = {}
    for text in texts:
        profile = choose(text)
        name = ",".join([profile.full_name, *profile.changed])
        figures = tuple(sorted(item for item in profile.figures.items() if not item[0].endswith(_CLOCK)))
        kind = (profile.backend, figures, profile.context_bytes, profile.num_devices)
        same = found.setdefault(kind, [])
        if any(name == other for other, _ in same):
            raise MemdiagError(phrase("fit.error.device-twice", name=name), phrase("fit.error.device-twice.hint"))
        same.append((name, profile))
    return tuple(_kind(same) for same in found.values())


def _kind(same: list[tuple[str, Profile]]) -> DeviceKind:
    profile = same[0][1]
    sizes = ("room=", "capacity=", "total=")
    changed = [option for option in profile.changed if not option.startswith(sizes)]
    recorded_on = ",".join([profile.full_name, *changed, f"total={UNLIMITED}"])
    return DeviceKind(
        recorded_on,
        tuple(FitDevice(name, each.product, each.total_bytes, each.capacity_bytes, recorded_on) for name, each in same),
    )
