"""Allocator policies, one folder each: how a simulated allocator serves the requests of a program.

``base.py`` defines the interface of a policy. Other packages add policies with entry points of the group
``memdiag.policies``.
"""

from __future__ import annotations

from typing import Any

from memdiag.allocator.policies.base import Policy
from memdiag.registry import Registry

POLICIES: Registry[Policy[Any]] = Registry(
    "policy",
    Policy,
    {
        "caching": "memdiag.allocator.policies.caching.policy:CACHING",
        "expandable": "memdiag.allocator.policies.expandable.policy:EXPANDABLE",
        "npu": "memdiag.allocator.policies.npu.policy:NPU",
        "npu-expandable": "memdiag.allocator.policies.npu.policy:NPU_EXPANDABLE",
        "lifecycle": "memdiag.allocator.policies.lifecycle.policy:LIFECYCLE",
        "lifecycle-stack": "memdiag.allocator.policies.lifecycle.policy:LIFECYCLE_STACK",
        "lifetime-oracle": "memdiag.allocator.policies.lifecycle.policy:LIFETIME_ORACLE",
        "stitch": "memdiag.allocator.policies.gmlake.policy:GMLAKE",
        "mempool": "memdiag.allocator.policies.mempool.policy:MEMPOOL",
        "npu-mempool": "memdiag.allocator.policies.mempool.policy:NPU_MEMPOOL",
        "best-fit": "memdiag.allocator.policies.best_fit.policy:BEST_FIT",
        "plan": "memdiag.allocator.policies.static_plan.policy:STATIC_PLAN",
        "bound": "memdiag.allocator.policies.bound.policy:BOUND",
    },
    "memdiag.policies",
)
