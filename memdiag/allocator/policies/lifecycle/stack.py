"""The feature as it was since November 2024: hooks around the whole stack of layers."""

from __future__ import annotations

from typing import Any

from memdiag.allocator.policies.lifecycle import policy as lifecycle
from memdiag.allocator.policies.lifecycle.hooks import marks_of
from memdiag.allocator.policies.lifecycle.marks import Marks
from memdiag.allocator.policies.lifecycle.replay import LifecycleReplay
from memdiag.allocator.workload import Workload
from memdiag.trace.model import DeviceTrace, Trace

BACKEND, VARIABLES = lifecycle.BACKEND, lifecycle.VARIABLES
with_own, adopted, columns = lifecycle.with_own, lifecycle.adopted, lifecycle.columns


def marks(trace: Trace, device: DeviceTrace, workload: Workload) -> Marks:
    """Returns when the hooks would run."""
    return marks_of(trace, device, workload, "stack")


def replay(workload: Workload, hooked: Marks, **how: Any) -> LifecycleReplay:
    """Replays a workload whose hooks run at ``hooked``."""
    return lifecycle.replay(workload, hooked, policy="lifecycle-stack", **how)
