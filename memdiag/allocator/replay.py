"""Replays a workload through one of PyTorch's own allocators, with other settings, another version or device."""

from __future__ import annotations

from memdiag.allocator.policies import POLICIES
from memdiag.allocator.policies.caching.policy import Beginning
from memdiag.allocator.result import Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.workload import Workload
from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.trace.table import Array


def replay(
    workload: Workload,
    policy: str,
    *,
    conf: str = "",
    torch_version: str = "2.13",
    capacity: int | None = None,
    fraction: float | None = None,
    log: bool = False,
    bases: Array | None = None,
    keep_start: bool = True,
) -> Replay:
    """Replays ``workload``.

    Args:
        policy: Key of ``POLICIES``.
        conf: Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF; "": all defaults.
        torch_version: Version whose rules apply; for NPU policies, of torch_npu.
        capacity: Bytes of the device; None: unlimited.
        fraction: Memory fraction set before the first call.
        log: Whether to keep the allocator's own entries.
        bases, keep_start: As in ``Beginning``.

    Raises:
        MemdiagError: Unknown policy, one that needs the recording, or settings that the allocator refuses.
    """
    if policy not in POLICIES:
        raise MemdiagError(phrase("errors.no-policy", name=policy), phrase("errors.choose", names=", ".join(POLICIES)))
    found = POLICIES[policy]
    if found.standing != "native":
        raise MemdiagError(phrase("errors.policy-workload", name=policy), phrase("errors.policy-workload.hint"))
    scenario = Scenario(policy, conf, torch_version, capacity, fraction)
    return found.serve(workload, Beginning(keep_start, bases), scenario, log=log)
