"""A plan made offline: places for what stays and for one step, used by all steps, and PyTorch's allocator for what differs."""

from __future__ import annotations

from typing import Any

import numpy as np

from memdiag.allocator.policies.expandable.policy import BACKEND, columns, with_own
from memdiag.allocator.policies.static_plan.plan import Planned
from memdiag.allocator.policies.static_plan.replay import PlannedReplay, make_plan, replay_planned
from memdiag.allocator.workload import Workload
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array

__all__ = ["BACKEND", "columns", "marks", "replay", "with_own"]


def marks(trace: Trace, device: DeviceTrace, workload: Workload) -> Planned:
    """Returns the plan: steps and the lines that make requests are those of the recording."""
    tensor = workload.tensor
    known = (tensor >= 0) & (tensor < len(device.tensors))
    site = np.where(known, _at(device.tensors.stack, np.where(known, tensor, 0), -1), -1)
    row = workload.row
    seen = (row >= 0) & (row < device.num_events)
    step = np.where(seen, _at(device.events.step, np.where(seen, row, 0), -1), -1)
    return make_plan(workload, site, step, trace.bases.get("step", "none"))


def _at(column: Array, row: Array, otherwise: int) -> Array:
    found: Array = column[row] if len(column) else np.full(len(row), otherwise)
    return found


def replay(workload: Workload, planned: Planned, **how: Any) -> PlannedReplay:
    """Replays a new run of the program, which begins with the plan."""
    return replay_planned(workload, planned, **how)
