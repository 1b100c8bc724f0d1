"""What to simulate: the policy, its settings, the version whose rules apply, and the device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """What to simulate.

    Attributes:
        policy: Key of ``allocator.policies.POLICIES``.
        conf: Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF; "": all defaults.
        torch_version: Whose rules apply; for NPU policies the version of torch_npu.
        capacity_bytes: Bytes of the device; None: unlimited.
        fraction: Per-process memory fraction; None: that of the settings.
    """

    policy: str
    conf: str = ""
    torch_version: str = "2.13"
    capacity_bytes: int | None = None
    fraction: float | None = None
