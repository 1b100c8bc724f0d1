"""Replays a workload through one of PyTorch's own allocators, with other settings, another version or device."""

from __future__ import annotations

from memdiag.allocator.policies import POLICIES
from memdiag.allocator.result import Replay
from memdiag.allocator.scenario import AS_RECORDED, Beginning, Scenario
from memdiag.allocator.workload import Workload
from memdiag.errors import MemdiagError
from memdiag.text import phrase


def serve(workload: Workload, scenario: Scenario, beginning: Beginning = AS_RECORDED, *, log: bool = False) -> Replay:
    """Replays ``workload``, from the state that ``beginning`` describes.

    Args:
        workload: The calls.
        scenario: Policy, settings, version and device.
        beginning: The state at the start.
        log: Whether to keep the allocator's own entries.

    Raises:
        MemdiagError: Unknown policy, one that needs the recording, or settings that the allocator refuses.
    """
    if scenario.policy not in POLICIES:
        choose = phrase("errors.choose", names=", ".join(POLICIES))
        raise MemdiagError(phrase("errors.no-policy", name=scenario.policy), choose)
    policy = POLICIES[scenario.policy]
    if policy.standing != "native":
        hint = phrase("errors.policy-workload.hint")
        raise MemdiagError(phrase("errors.policy-workload", name=scenario.policy), hint)
    return policy.serve(workload, beginning, scenario, log=log)


def replay(
    workload: Workload,
    policy: str,
    *,
    conf: str = "",
    torch_version: str = "2.13",
    capacity: int | None = None,
    fraction: float | None = None,
    log: bool = False,
    beginning: Beginning = AS_RECORDED,
) -> Replay:
    """Replays ``workload`` under the scenario of the arguments, see ``Scenario`` and ``serve``."""
    return serve(workload, Scenario(policy, conf, torch_version, capacity, fraction), beginning, log=log)
