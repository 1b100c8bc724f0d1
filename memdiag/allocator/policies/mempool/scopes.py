"""Private pools of the program (``torch.cuda.MemPool``), one per phase: segregation without another allocator.

A scope (``with use_mem_pool(pool)``) sends the requests of its thread to a pool. Only the place in the program decides
to which pool a tensor goes, at the time of its allocation. memdiag adds three scopes to a recording:

* *weights*: around the set-up of the model;
* *optimizer*: around the first optimizer step, which allocates the states; later steps allocate none;
* *layers*: around each forward call of an element of a module list, including recomputed ones.

All layers share one pool, because one pool for each layer or kind of layer needs more memory
(reports/mempool-modules.md).

Gradients and other tensors of backward are allocated by a thread of autograd, which the program's scopes do not reach.
They stay in the default pool, with the rest. The pools live as long as the program, so their cached memory is never
released, not even when memory runs out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.engine.model import RESULTS
from memdiag.allocator.policies.caching.policy import CachingPolicy
from memdiag.allocator.policies.lifecycle.hooks import marks_of
from memdiag.allocator.policies.lifecycle.marks import (
    FORWARD_BEGIN,
    FORWARD_END,
    PRECISE_BEGIN,
    PRECISE_END,
    RELEASE,
    HookMarks,
)
from memdiag.allocator.policies.mempool.detail import Mempools, PoolAtPeak
from memdiag.allocator.result import OK, Replay
from memdiag.allocator.scenario import Beginning, Scenario
from memdiag.allocator.workload import Workload
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array

NAMES: tuple[str, ...] = ("weights", "optimizer", "layers")
WEIGHTS, OPTIMIZER, LAYERS = range(3)
_NONE = "none"


@dataclass(frozen=True)
class Scopes:
    """Ranges [begin, end) of a workload's calls in which scopes are open, in order, not nested.

    Attributes:
        begin, end: Per scope (int64).
        pool: Index into ``NAMES`` (int64).
        bases: Evidence for each of ``NAMES``: "marks", "stacks" … or "none".
    """

    begin: Array
    end: Array
    pool: Array
    bases: dict[str, str]

    def only(self, names: Collection[str]) -> Scopes:
        """Returns only the scopes of some of ``NAMES``; requests in other scopes go to the default pool."""
        stays = np.isin(self.pool, [number for number, name in enumerate(NAMES) if name in names])
        bases = {name: basis if name in names else _NONE for name, basis in self.bases.items()}
        return Scopes(self.begin[stays], self.end[stays], self.pool[stays], bases)


@dataclass(frozen=True)
class MempoolReplay(Replay):
    """A replay, and the use of the pools; ``mempools`` is None if the log was not kept."""

    mempools: Mempools | None = None


def scopes_of(trace: Trace, device: DeviceTrace, workload: Workload) -> Scopes:
    """Returns the scopes that a program would open."""
    marks = marks_of(trace, device, workload, "layer")
    found = _spans(marks)
    bases = {"weights": marks.bases["setup"], "optimizer": marks.bases["optimizer"], "layers": marks.bases["forward"]}
    used = {NAMES[pool] for _, _, pool in found}
    table = np.array(found, np.int64).reshape(-1, 3)
    bases = {name: bases[name] if name in used else _NONE for name in NAMES}
    return Scopes(table[:, 0], table[:, 1], table[:, 2], bases)


def _spans(marks: HookMarks) -> list[tuple[int, int, int]]:
    """Returns (begin, end, pool) of each scope; the outermost of nested marks defines it."""
    spans: list[tuple[int, int, int]] = []
    depth, begin, pool, is_optimizer = 0, 0, LAYERS, False
    for at, kind in zip(marks.at.tolist(), marks.kind.tolist(), strict=True):
        if kind == RELEASE:
            is_optimizer = True  # the optimizer's wrapper makes this call first
        elif kind in (PRECISE_BEGIN, FORWARD_BEGIN):
            if depth == 0:
                begin, pool = at, LAYERS if kind == FORWARD_BEGIN else OPTIMIZER if is_optimizer else WEIGHTS
            depth += 1
        elif kind in (PRECISE_END, FORWARD_END) and depth:
            depth -= 1
            if depth == 0 and at > begin:
                spans.append((begin, at, pool))
            is_optimizer = is_optimizer and kind != PRECISE_END
    return spans


def with_pools(workload: Workload, scopes: Scopes, *, use_on_oom: bool = False) -> tuple[Workload, Array]:
    """Returns a workload with requests in the scopes' pools, and the original call of each call (-1: a scope's edge).

    Args:
        workload: The recorded calls; requests of private pools stay in them.
        scopes: The scopes of ``workload``.
        use_on_oom: Whether the default pool may use their free memory on OOM (``MemPool(use_on_oom=True)``).

    Tensors from before the start go to the weights: they are assumed to come from the first two scopes.
    """
    count, first = len(workload.op), len(workload.pools)
    taken = max((minor for major, minor in workload.pools if major == 0), default=0)
    pools = (*workload.pools, *((0, taken + 1 + number) for number in range(len(NAMES))))
    inside = np.full(count + 1, -1, np.int64)
    for begin, end, pool in zip(scopes.begin.tolist(), scopes.end.tolist(), scopes.pool.tolist(), strict=True):
        inside[begin:end] = pool
    inside = inside[:count]
    mine = (workload.op == w.ALLOC) & (workload.pool <= 0) & (inside >= 0)
    own = np.where(mine, first + inside, workload.pool)
    num = len(scopes.begin)
    # At the same call, an end comes before a beginning.
    at = np.concatenate((scopes.end, scopes.begin, np.arange(count)))
    rank = np.concatenate((np.zeros(num), np.ones(num), np.full(count, 2)))
    order = np.lexsort((rank, at))
    op = np.concatenate((np.full(num, w.POOL_END), np.full(num, w.POOL_BEGIN), workload.op))[order].astype(np.int8)
    edge = np.full(2 * num, -1)
    row = np.append(workload.row, workload.row[-1:] if count else [0])[np.minimum(at[: 2 * num], count)]
    start = workload.start
    if len(start.pool):
        start = replace(start, pool=np.where(start.pool == 0, first + WEIGHTS, start.pool).astype(np.int32))
    changed = replace(
        workload,
        op=op,
        tensor=np.concatenate((edge, workload.tensor))[order].astype(np.int32),
        size=np.concatenate((np.zeros(2 * num), workload.size))[order].astype(np.int64),
        stream=np.concatenate((edge, workload.stream))[order].astype(np.int32),
        pool=np.concatenate((first + scopes.pool, first + scopes.pool, own))[order].astype(np.int32),
        row=np.concatenate((row, workload.row))[order].astype(np.int64),
        pools=pools,
        start=start,
        stand_in=workload.stand_in | (frozenset(range(first, first + len(NAMES))) if use_on_oom else frozenset()),
    )
    return changed, np.concatenate((edge, np.arange(count)))[order]


def replay_mempool(
    workload: Workload,
    scopes: Scopes,
    base: CachingPolicy,
    scenario: Scenario,
    *,
    conf: str = "",
    use_on_oom: bool = False,
    log: bool = False,
) -> MempoolReplay:
    """Replays a workload with the pools of ``scopes``.

    Args:
        workload: The recorded calls.
        scopes: The scopes of ``workload``.
        base: The base allocator.
        scenario: Version and device, and the names in the result.
        conf: Settings of the allocator.
        use_on_oom: As in ``with_pools``.
        log: Whether to keep the allocator's log.
    """
    changed, was = with_pools(workload, scopes, use_on_oom=use_on_oom)
    found = base.serve(changed, Beginning(keep_start=False), replace(scenario, conf=conf), log=log)
    stays = was >= 0
    columns = {name: getattr(found, name)[stays] for name in RESULTS}
    entries = None
    if found.log is not None:
        # an entry of an inserted scope call belongs to the next call of the recording
        following = np.minimum.accumulate(np.where(stays, was, len(workload.op))[::-1])[::-1]
        call = found.log["call"]
        last = max(len(workload.op) - 1, -1)
        entries = {
            **found.log,
            "call": np.where(call >= 0, np.minimum(following[np.maximum(call, 0)], last), -1) if len(was) else call,
        }
    result = MempoolReplay.from_columns(
        scenario, columns, limit_bytes=found.limit_bytes, bases=found.bases, log=entries, pools=changed.pools
    )
    return result if entries is None else replace(result, mempools=_detail(result, workload, scopes))


def _detail(result: MempoolReplay, workload: Workload, scopes: Scopes) -> Mempools:
    """Returns the use of each pool at the peak of reserved bytes."""
    log = result.log or {}
    peak = int(np.argmax(result.reserved)) if len(result.reserved) else -1
    then = log["call"] <= peak
    action, pool, size = log["action"], log["pool"], log["size"]
    count = len(result.pools or ())
    gained = then & np.isin(action, (schema.SEGMENT_ALLOC, schema.SEGMENT_MAP))
    gone = then & np.isin(action, (schema.SEGMENT_FREE, schema.SEGMENT_UNMAP))
    held = np.bincount(pool[gained], size[gained], count) - np.bincount(pool[gone], size[gone], count)
    made = then & (action == schema.ALLOC)
    freed = then & (action == schema.FREE_COMPLETED)
    used = np.bincount(pool[made], size[made], count) - np.bincount(pool[freed], size[freed], count)
    first = len(workload.pools)
    asks = (workload.op == w.ALLOC) & (result.status == OK)
    states = [PoolAtPeak("default", int(held[:first].sum()), int(used[:first].sum()), 0, first)]
    for number, name in enumerate(NAMES):
        mine = first + number
        num_scopes = int(np.count_nonzero(scopes.pool == number))
        states.append(PoolAtPeak(name, int(held[mine]), int(used[mine]), num_scopes))
    return Mempools(dict(scopes.bases), int(asks.sum()), tuple(states))
