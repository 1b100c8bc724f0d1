"""A placement plan and the calls from which it was made."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.allocator.policies.static_plan.profile import Requests
from memdiag.allocator.policies.static_plan.script import Script
from memdiag.allocator.workload import Workload
from memdiag.trace.table import Array


@dataclass(frozen=True)
class Planned:
    """A plan, and its input.

    Attributes:
        workload: The calls; the tensors of its start are leading requests, which are not calls of the trace
            (``num_before``).
        pool, site, step: Per call, pool and allocation site of a request, and number of the step; -1: unknown or none.
        basis: Evidence for the steps: "marks", "stacks" … or "none".
    """

    workload: Workload
    num_before: int
    pool: Array
    site: Array
    step: Array
    basis: str
    requests: Requests
    script: Script
