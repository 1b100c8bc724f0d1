"""The most bytes that are live at one moment: what no allocator can be below of.

Each tensor has a range of its own while it lives.
"""

from __future__ import annotations

from typing import Any

from memdiag.allocator.policies.caching.policy import BACKEND, with_own
from memdiag.allocator.policies.static_plan.replay import PlannedReplay, replay_bound
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.allocator.workload import Workload
from memdiag.trace.layout import Layout
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array

__all__ = ["BACKEND", "columns", "marks", "replay", "with_own"]


def columns(sizes: Array, conf: Conf, rules: Rules) -> tuple[Array, Array]:  # noqa: ARG001 - all policies are called alike
    """Returns, for requests of ``sizes`` bytes (int64): bytes of the block, and of its range (int64)."""
    rounded = Layout().round(sizes)
    return rounded, rounded


def marks(trace: Trace, device: DeviceTrace, workload: Workload) -> None:
    """Returns nothing: what the program was doing makes no difference."""


def replay(workload: Workload, _: None, **how: Any) -> PlannedReplay:
    """Replays a workload."""
    return replay_bound(workload, **how)
