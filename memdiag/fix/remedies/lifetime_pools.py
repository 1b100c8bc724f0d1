"""Turns on the lifetime-segregated pools of MindSpeed, where the installed MindSpeed still has them (NPU).

PyTorch cannot record a process with these pools, so the fixed run is measured by the used memory of the device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from memdiag.analyzers.lifetime_pools import buffer_bytes
from memdiag.errors import MemdiagError
from memdiag.fix.base import Proposal, Refusal
from memdiag.fix.case import FixCase, PooledRun
from memdiag.fix.edit import Edit
from memdiag.text import phrase
from memdiag.units import format_bytes

NAME = "lifetime-pools"
_SWITCH = "switch memory-fragmentation"
_PARTS = ("/mindspeed/", "/ascendspeed/", "/megatron/")
_POLICIES = ("lifecycle", "lifecycle-stack")
_EXPANDABLE = "expandable_segments:True"
_OFF = "export PYTORCH_NPU_ALLOC_CONF=expandable_segments:False"


def propose(case: FixCase) -> Iterable[Proposal | Refusal]:
    """Yields the remedy, or why it does not apply, for programs on NPUs that run Megatron-LM or MindSpeed."""
    if case.trace.backend != "npu" or case.subject.is_foreign:
        return
    files = [frame.filename.replace("\\", "/") for frame in case.trace.stacks.frames]
    if "library mindspeed" not in case.facts and not any(part in file for file in files for part in _PARTS):
        return
    setting = f"export PYTORCH_NPU_ALLOC_CONF={_EXPANDABLE}"
    if _SWITCH not in case.facts:
        yield Refusal(NAME, phrase("fix.refused.pools.missing"), (), setting)
        return
    conf = case.given.conf if case.given.conf is not None else case.subject.recorded.conf or ""
    if _EXPANDABLE.lower() in conf.lower():
        yield Refusal(NAME, phrase("fix.refused.pools.exclusive", name=_EXPANDABLE), (), _OFF)
        return
    budget, outside = case.budget_bytes, max(case.subject.most_outside, buffer_bytes(case.trace))
    pools = PooledRun(_POLICIES, max(math.floor((budget - outside) / budget * 100) / 100, 0.01))
    try:
        fits = case.peaks_given(replace(case.given, pools=pools)).fits
    except MemdiagError:  # no evidence for the hooks
        fits = False
    if not fits:
        yield Refusal(NAME, phrase("fix.refused.pools.fail", budget=format_bytes(budget)), (), setting)
        return
    fraction = f"{pools.fraction:.2f}"
    yield Proposal(
        NAME,
        phrase("fix.lifetime-pools", share=fraction),
        (),
        Edit(),
        f"--memory-fragmentation  # and torch_npu.npu.set_per_process_memory_fraction({fraction}) for HCCL",
        phrase("fix.lifetime-pools.caveat"),
        phrase("fix.lifetime-pools.cost"),
        "lifetime_pools",
        {"fraction": pools.fraction},
        pools=pools,
    )
