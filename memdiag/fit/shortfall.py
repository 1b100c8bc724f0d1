"""The missing memory on a device on which nothing fits, and which single change comes closest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from memdiag.phantom.profiles import profiles
from memdiag.results.fit import FAILS, AxisEffect, DeviceFit, FitCell, FitDevice, GridAxis, Shortfall


def shortfall_on(at: int, device: FitDevice, axes: Sequence[GridAxis], cells: Sequence[FitCell]) -> Shortfall | None:
    """Returns the missing memory on a device; None: something fits, or nothing ran.

    Args:
        at: Index of the device in ``FitCell.on``.
        device: The device.
        axes: The axes of the grid.
        cells: All configurations.
    """
    known = [(cell, cell.on[at]) for cell in cells]
    missing = {cell.values: -on.headroom_bytes for cell, on in known if on.headroom_bytes is not None}
    if not missing or any(on.outcome not in {FAILS, "unknown"} for _, on in known):
        return None
    closest, on = min(
        ((cell, on) for cell, on in known if cell.values in missing), key=lambda entry: missing[entry[0].values]
    )
    return Shortfall(
        device.name,
        closest.values,
        missing[closest.values],
        on.setting,
        _larger(device, on),
        tuple(sorted(_effects(axes, closest, {cell.values: it for cell, it in known}), key=lambda e: -e.saved_bytes)),
    )


def _larger(device: FitDevice, on: DeviceFit) -> str:
    """Returns the smallest known device of the same backend with enough memory, or ""."""
    backend = device.name.partition(":")[0]
    enough = [
        profile
        for profile in profiles()
        if profile.backend == backend and on.smallest_total_bytes and profile.total_bytes >= on.smallest_total_bytes
    ]
    return min(enough, key=lambda profile: profile.total_bytes).full_name if enough else ""


def _effects(
    axes: Sequence[GridAxis], closest: FitCell, runs: Mapping[tuple[str, ...], DeviceFit]
) -> Iterator[AxisEffect]:
    """Yields the largest change that each axis makes between two runs, those with the closest run first."""
    peaks = {values: on.peak_reserved_bytes for values, on in runs.items() if on.peak_reserved_bytes is not None}
    for place, axis in enumerate(axes):
        pairs = [
            (one, other)
            for one, peak in peaks.items()
            for other, its in peaks.items()
            if its < peak and all((a != b) == (at == place) for at, (a, b) in enumerate(zip(one, other, strict=True)))
        ]
        pairs = [pair for pair in pairs if closest.values in pair] or pairs
        if pairs:
            heavy, light = max(pairs, key=lambda pair: peaks[pair[0]] - peaks[pair[1]])
            yield AxisEffect(axis.name, heavy[place], light[place], peaks[heavy] - peaks[light])
