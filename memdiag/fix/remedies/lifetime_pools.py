"""Replays a program with the lifetime-segregated pools of MindSpeed, and names the switch (NPU).

memdiag does not turn them on: PyTorch cannot record a process with these pools, so memdiag could not measure the peak.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from memdiag.allocator.result import OUT_OF_MEMORY
from memdiag.analyzers.lifetime_pools import buffer_bytes
from memdiag.errors import MemdiagError
from memdiag.fix.base import Refusal
from memdiag.fix.case import FixCase
from memdiag.text import phrase
from memdiag.units import format_bytes

NAME = "lifetime-pools"
_SWITCH = "switch memory-fragmentation"
_PARTS = ("/mindspeed/", "/ascendspeed/", "/megatron/")
_POLICIES = ("lifecycle", "lifecycle-stack")
_EXPANDABLE = "expandable_segments:True"


def propose(case: FixCase) -> Iterable[Refusal]:
    """Yields the reason, for programs on NPUs that run Megatron-LM or MindSpeed."""
    if case.trace.backend != "npu" or case.subject.is_foreign:
        return
    files = [frame.filename.replace("\\", "/") for frame in case.trace.stacks.frames]
    if "library mindspeed" not in case.facts and not any(part in file for file in files for part in _PARTS):
        return
    setting = f"export PYTORCH_NPU_ALLOC_CONF={_EXPANDABLE}"
    if _SWITCH not in case.facts:
        yield Refusal(NAME, phrase("fix.refused.pools.missing"), (), setting)
        return
    budget, outside = case.budget_bytes, max(case.subject.most_outside, buffer_bytes(case.trace))
    fraction = max(math.floor((budget - outside) / budget * 100) / 100, 0.01)
    needed = {policy: _needed(case, policy, fraction) for policy in _POLICIES}
    fitting = {policy: peak for policy, peak in needed.items() if peak is not None}
    if not fitting:
        yield Refusal(NAME, phrase("fix.refused.pools.fail", budget=format_bytes(budget)), (), setting)
        return
    line = f"--memory-fragmentation  # and torch_npu.npu.set_per_process_memory_fraction({fraction:.2f}) for HCCL"
    size = format_bytes(min(fitting.values()))
    yield Refusal(NAME, phrase("fix.refused.pools", peak=size, budget=format_bytes(budget)), (), line)


def _needed(case: FixCase, policy: str, fraction: float) -> int | None:
    """Returns the reserved peak with the pools within the budget, or None if a request fails."""
    scenario = replace(case.subject.on_card(case.budget_bytes), policy=policy, conf="", fraction=fraction)
    try:
        replay = case.subject.replay(scenario, log=False)
    except MemdiagError:
        return None
    return None if (replay.status == OUT_OF_MEMORY).any() else int(replay.reserved.max(initial=0))
