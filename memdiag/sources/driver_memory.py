"""Driver memory of a process by module (APP, HCCL, RUNTIME …): a curve sampled about fifty times a second."""

from __future__ import annotations

import numpy as np

from memdiag.sources.growing import ByteLimit, Columns, Names
from memdiag.sources.notes import Notes
from memdiag.sources.partial import unknown
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.raw import RawDevice
from memdiag.trace.table import Array
from memdiag.units import format_bytes

_NAMED = 4  # number of modules in the note


class DriverMemory:
    """Collects samples and builds devices from them."""

    def __init__(self, budget: ByteLimit) -> None:
        self._modules = Names(budget)
        self._samples = Columns(("device", "module", "time", "reserved"), budget)

    def add(self, device: int, module: str, time: int, reserved: int) -> None:
        """Adds the memory of a module (bytes) at a time (nanoseconds).

        A negative value means that only frees were seen; it counts as 0.
        """
        self._samples.add(device, self._modules.number(module), time, max(reserved, 0))

    def devices(self, notes: Notes) -> list[RawDevice]:
        """Returns the columns of each device: the sum over modules after each sample."""
        samples = self._samples.arrays()
        names = self._modules.list()
        raws = []
        for number in np.unique(samples["device"]).tolist():
            rows = np.flatnonzero(samples["device"] == number)
            rows = rows[np.argsort(samples["time"][rows], kind="stable")]
            time, total, at_peak = _sums(
                samples["time"][rows], samples["module"][rows], samples["reserved"][rows], len(names)
            )
            held = sorted(((size, names[module]) for module, size in at_peak.items() if size), reverse=True)
            shares = ", ".join(f"{name} {format_bytes(size)}" for size, name in held[:_NAMED])
            notes.add("MD913", phrase("notes.driver", device=str(number), shares=shares))
            nothing = unknown(len(time))
            raws.append(
                RawDevice(
                    device=number,
                    action=np.full(len(time), schema.UNKNOWN, np.int8),
                    addr=nothing,
                    size=np.zeros(len(time), np.int64),
                    time_us=time // 1000,
                    has_addresses=False,
                    curves={"reserved": total, "allocated": nothing, "active": nothing, "requested": nothing},
                )
            )
        for code in ("MD910", "MD911", "MD915", "MD917"):
            notes.add(code)
        return raws


def _sums(time: Array, module: Array, reserved: Array, num_modules: int) -> tuple[Array, Array, dict[int, int]]:
    """Returns the distinct times, the sum over modules after each, and the parts of the highest sum."""
    last = dict.fromkeys(range(num_modules), 0)
    total, highest = 0, -1
    at_peak: dict[int, int] = {}
    sums = []
    for at, (now, which, size) in enumerate(zip(time.tolist(), module.tolist(), reserved.tolist(), strict=True)):
        total += size - last[which]
        last[which] = size
        if at + 1 == len(time) or int(time[at + 1]) != now:
            sums.append(total)
            if total > highest:
                highest, at_peak = total, dict(last)
    return np.unique(time), np.array(sums, np.int64), at_peak
