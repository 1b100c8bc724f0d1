"""Captures all CUDA graphs into one private pool (finding MD142).

A graph that is captured later reuses the memory of temporary tensors of earlier ones. If graphs grow from capture to
capture, only expandable segments make that possible: a free block at the end of a segment grows in place.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memdiag.allocator.workload import ALLOC
from memdiag.analyzers.private_pools import find_pools
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.fix.base import Proposal
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit
from memdiag.text import phrase

NAME = "shared-graph-pool"
_SETTING = "expandable_segments:True"


def propose(case: FixCase) -> Iterable[Proposal]:
    """Yields the remedy if several graphs have a pool each: with the recorded settings, then with expandable ones."""
    work = case.subject.workload
    if case.trace.backend != "cuda":  # torch_npu captures graphs in another class
        return
    ids = [number for number in sorted(work.captured) if work.pools[number][0]]
    if len(ids) < 2:
        return
    sites = dict.fromkeys(pool.site for pool in find_pools(case.view) if pool.kind == "graph" and pool.site)
    edit = Edit(pools=dict.fromkeys(ids[1:], ids[0]))
    if not np.isin(work.pool[work.op == ALLOC], ids).any():
        return
    recorded = case.subject.recorded.conf or ""
    confs = [""]
    if "expandable_segments" not in recorded:
        confs += [conf] if case.accepts(conf := ",".join(part for part in (recorded, _SETTING) if part)) else []
    for conf in confs:
        change = "torch.cuda.graph(graph, pool=first_graph.pool())"
        setting = f"export {AllocatorSettings.of(case.trace).variable}={conf}" if conf else ""
        yield Proposal(
            NAME,
            phrase("fix.shared-graph-pool.expandable" if conf else "fix.shared-graph-pool", count=len(ids)),
            tuple(sites),
            edit,
            "; ".join(part for part in (change, setting) if part),
            phrase("fix.shared-graph-pool.caveat"),
            phrase("fix.shared-graph-pool.cost"),
            "shared_graph_pool",
            conf=conf,
            is_safe=False,
        )
