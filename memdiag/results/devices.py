"""Result of ``memdiag devices``: the devices that can be simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class SimulatedDevice:
    """One device.

    Attributes:
        name: Backend and name, as --phantom takes it: "cuda:h100-80g".
        backend: "cuda" or "npu".
        product: Product name of the manufacturer.
        total_bytes: Memory that the driver reports.
        context_bytes: Memory that the runtime takes before PyTorch allocates anything.
        context_error_bytes: By how much published figures differ from ``context_bytes``; 0: unknown.
        capacity_bytes: Memory that PyTorch's allocator can reserve.
        figures: Other properties that change traces: compute capability and multiprocessors (CUDA), chip and versions
            (Ascend).
        sources: For each figure, by its name: the URL of the publication.
        estimates: For each estimated figure, by its name: why it is an estimate.
    """

    name: str
    backend: str
    product: str
    total_bytes: int
    context_bytes: int
    context_error_bytes: int
    capacity_bytes: int
    figures: Mapping[str, int | str]
    sources: Mapping[str, str]
    estimates: Mapping[str, str]


@dataclass(frozen=True)
class Devices:
    """Devices that ``memdiag record --phantom`` can simulate.

    Attributes:
        devices: One entry for each device.
    """

    devices: tuple[SimulatedDevice, ...]
