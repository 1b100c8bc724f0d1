"""torch_npu's caching allocator with pools of the program's own: ``torch_npu.npu.MemPool``."""

from __future__ import annotations

from typing import Any

from memdiag.allocator.policies.mempool import policy as mempool
from memdiag.allocator.policies.mempool.scopes import MempoolReplay, Scopes, replay_mempool
from memdiag.allocator.policies.npu import policy as npu
from memdiag.allocator.workload import Workload

BACKEND = npu.BACKEND
columns = npu.columns
with_own, marks, VARIABLES = mempool.with_own, mempool.marks, mempool.VARIABLES


def replay(workload: Workload, scopes: Scopes, *, conf: str = "", **how: Any) -> MempoolReplay:
    """Replays a workload."""
    chosen = mempool.options(conf, scopes)
    return replay_mempool(workload, base="npu", policy="npu-mempool", conf=with_own(conf), text=conf, **chosen, **how)
