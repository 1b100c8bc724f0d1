"""The same pools with perfect knowledge: a tensor is long-lived if it will outlive its window.

How far the idea itself could go.
"""

from __future__ import annotations

from typing import Any

from memdiag.allocator.policies.lifecycle import policy as lifecycle
from memdiag.allocator.policies.lifecycle.marks import Marks
from memdiag.allocator.policies.lifecycle.replay import LifecycleReplay
from memdiag.allocator.workload import Workload

BACKEND, VARIABLES = lifecycle.BACKEND, lifecycle.VARIABLES
with_own, adopted, columns, marks = lifecycle.with_own, lifecycle.adopted, lifecycle.columns, lifecycle.marks


def replay(workload: Workload, hooked: Marks, **how: Any) -> LifecycleReplay:
    """Replays a workload whose hooks run at ``hooked``."""
    return lifecycle.replay(workload, hooked, policy="lifetime-oracle", is_oracle=True, **how)
