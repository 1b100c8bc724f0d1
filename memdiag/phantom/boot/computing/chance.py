"""Draws random numbers on the CPU instead of the device.

They differ from the device's, but are reproducible for the same seed and position.

A device generator exposes its seed and position. A CPU generator seeded with both gives the same numbers again when the
program restores the device's generator, as recomputing a checkpointed layer does. The CPU's own generator, with which a
program shuffles its data, is not affected.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

_MIX = 0x9E3779B97F4A7C15  # an odd number whose multiples spread over 64 bits


class Chance:
    """Draws for a device.

    Args:
        torch: The module.
        device: "cuda" or "npu".
    """

    def __init__(self, torch: Any, device: str) -> None:
        self._torch = torch
        self._device = device
        self._draws = 0

    def place(self, generator: Optional[Any], index: int) -> int:
        """Returns a seed for the next draw on a device, before it happens."""
        try:
            generator = generator or getattr(self._torch, self._device).default_generators[index]
            seed, offset = generator.initial_seed(), generator.get_offset()
        except Exception:  # noqa: BLE001 - some generators do not expose their position
            self._draws += 1
            seed, offset = 0, self._draws
        return self.mixed(seed, offset)

    @staticmethod
    def mixed(seed: int, offset: int) -> int:
        """Returns one seed for two numbers."""
        return ((seed + 1) * _MIX + (offset + 1) * (_MIX >> 7 | 1)) & 0x7FFF_FFFF_FFFF_FFFF

    def generator(self, seed: int) -> Any:
        """Returns a generator of the CPU."""
        return self._torch.Generator(device="cpu").manual_seed(seed)

    @contextmanager
    def instead(self, seed: int) -> Iterator[None]:
        """Makes the CPU's own generator draw from a seed within the block."""
        own = self._torch.default_generator
        before = own.get_state()
        try:
            own.manual_seed(seed)
            yield
        finally:
            own.set_state(before)
