"""What to simulate: the policy, its settings, the version whose rules apply, the device, and the state at the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # numpy, which the options of commands do without
    from memdiag.trace.table import Array


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


@dataclass(frozen=True)
class Beginning:
    """The state with which a replay of PyTorch's own allocator begins.

    Attributes:
        keep_start: Whether to keep the ranges and blocks of ``workload.start``. Otherwise its tensors are allocated
            first, by address, under the settings of the replay. In the log these are calls -1; if one of them fails,
            ``ooms`` begins above 0.
        bases: Recorded addresses of ranges reserved during the recording, in order (for ties between equal free
            blocks). An optional second row has the lane of each: ``(2 * pool + small) * number of streams + stream``.
    """

    keep_start: bool = True
    bases: Array | None = None


AS_RECORDED = Beginning()
