"""The devices that a program can be recorded on without having them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from memdiag.phantom.profiles import Profile, choose, profiles
from memdiag.results.devices import Devices, SimulatedDevice


def simulated_devices(names: Sequence[str] = ()) -> Devices:
    """Returns the simulated devices of these names, as ``--phantom`` takes them; without names, all of them.

    Raises:
        MemdiagError: A name is not the name of a device.
    """
    chosen = [choose(name) for name in names] or profiles()
    return Devices(tuple(map(_device, chosen)))


def _device(profile: Profile) -> SimulatedDevice:
    same = [field.name for field in fields(SimulatedDevice) if field.name != "name"]
    return SimulatedDevice(name=profile.full_name, **{name: getattr(profile, name) for name in same})
