"""MemPools of the program: requests go to the right pool, without look-ahead, under the real rules of private pools."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memdiag.allocator import workload as w
from memdiag.allocator.as_trace import as_trace
from memdiag.allocator.policies.caching.policy import CACHING
from memdiag.allocator.policies.lifecycle.marks import KINDS, HookMarks
from memdiag.allocator.policies.mempool.policy import MEMPOOL, NPU_MEMPOOL
from memdiag.allocator.policies.mempool.scopes import (
    LAYERS,
    NAMES,
    OPTIMIZER,
    WEIGHTS,
    MempoolReplay,
    Scopes,
    _spans,
    replay_mempool,
    with_pools,
)
from memdiag.allocator.replay import replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.subject import Subject
from memdiag.allocator.workload import Start, Workload
from memdiag.errors import MemdiagError
from memdiag.sources.torch_snapshot import read
from memdiag.units import MIB

BASES = dict.fromkeys(NAMES, "marks")


def replayed(
    work: Workload, opened: Scopes, *, capacity: int | None = None, torch_version: str = "2.13", **how: bool
) -> MempoolReplay:
    return replay_mempool(work, opened, CACHING, Scenario("mempool", "", torch_version, capacity), **how)


def workload_of(calls: list[tuple[int, int, int]], **more: object) -> Workload:
    op, tensor, size = (np.array([call[i] for call in calls], np.int64) for i in range(3))
    n = len(calls)
    return Workload(
        op=op.astype(np.int8),
        tensor=tensor.astype(np.int32),
        size=size,
        stream=np.zeros(n, np.int32),
        pool=np.full(n, -1, np.int32),
        row=np.arange(n),
        num_rows=n,
        num_tensors=int(tensor.max(initial=0)) + 1,
        streams=np.zeros(1, np.uint64),
        **more,  # type: ignore[arg-type]
    )


def scopes(*spans: tuple[int, int, int]) -> Scopes:
    table = np.array(spans, np.int64).reshape(-1, 3)
    return Scopes(table[:, 0], table[:, 1], table[:, 2], BASES)


def training() -> tuple[Workload, Scopes]:
    """Returns weights, then steps of two layers, a backward and an optimizer step each."""
    calls = [(w.ALLOC, 0, 30 * MIB), (w.ALLOC, 1, 30 * MIB)]
    spans = [(0, 2, WEIGHTS)]
    tensor = 2
    for step in range(3):
        kept = []
        for _ in range(2):
            begin = len(calls)
            calls += [(w.ALLOC, tensor, 12 * MIB), (w.ALLOC, tensor + 1, 5 * MIB), (w.FREE, tensor + 1, 0)]
            spans.append((begin, len(calls), LAYERS))
            kept.append(tensor)
            tensor += 2
        for each in kept:
            calls += [(w.ALLOC, tensor, 14 * MIB), (w.FREE, each, 0), (w.FREE, tensor, 0)]
            tensor += 1
        begin = len(calls)
        calls += [(w.ALLOC, tensor, 60 * MIB)] if step == 0 else [(w.ALLOC, tensor, 8 * MIB), (w.FREE, tensor, 0)]
        if step == 0:
            spans.append((begin, len(calls), OPTIMIZER))
        tensor += 1
    return workload_of(calls), scopes(*spans)


def test_requests_within_a_scope_go_to_its_pool_and_all_others_stay() -> None:
    work, opened = training()
    changed, was = with_pools(work, opened)
    asks = np.flatnonzero((changed.op == w.ALLOC) & (was >= 0))
    inside = {
        int(call): 1 + pool
        for begin, end, pool in zip(opened.begin, opened.end, opened.pool, strict=True)
        for call in range(begin, end)
    }
    assert changed.pool[asks].tolist() == [inside.get(call, -1) for call in was[asks].tolist()]
    assert was[was >= 0].tolist() == list(range(len(work.op)))
    assert changed.pools == ((0, 0), (0, 1), (0, 2), (0, 3))
    depth = np.cumsum(np.where(changed.op == w.POOL_BEGIN, 1, np.where(changed.op == w.POOL_END, -1, 0)))
    assert set(depth.tolist()) == {0, 1}


def test_where_a_tensor_lies_does_not_depend_on_what_comes_later() -> None:
    work, opened = training()
    whole = replayed(work, opened)
    for count in range(1, len(work.op)):
        part = replace(
            work, **{name: getattr(work, name)[:count] for name in ("op", "tensor", "size", "stream", "pool", "row")}
        )
        cut = scopes(
            *[
                (begin, min(end, count), pool)
                for begin, end, pool in zip(
                    opened.begin.tolist(), opened.end.tolist(), opened.pool.tolist(), strict=True
                )
                if begin < count
            ]
        )
        found = replayed(part, cut)
        for name in ("seg", "off", "block", "reserved", "device_allocs"):
            assert getattr(found, name).tolist() == getattr(whole, name)[:count].tolist()


def test_pools_share_no_segment_and_the_sums_are_those_of_the_replay() -> None:
    work, opened = training()
    found = replayed(work, opened, log=True)
    assert found.mempools is not None
    peak = int(np.argmax(found.reserved))
    assert sum(pool.reserved_bytes for pool in found.mempools.pools) == found.reserved[peak]
    assert sum(pool.requested_bytes for pool in found.mempools.pools) == found.requested[peak]
    assert [(pool.name, pool.num_scopes) for pool in found.mempools.pools] == [
        ("default", 0),
        ("weights", 1),
        ("optimizer", 1),
        ("layers", 6),
    ]
    assert found.log is not None
    owners: dict[int, set[int]] = {}
    for seg, pool in zip(found.log["seg"].tolist(), found.log["pool"].tolist(), strict=True):
        owners.setdefault(seg, set()).add(pool)
    assert all(len(pools) == 1 for seg, pools in owners.items() if seg >= 0)


def test_without_scopes_it_is_the_plain_allocator() -> None:
    work, opened = training()
    mine, plain = replayed(work, opened.only(())), replay(work, "caching")
    for name in ("status", "seg", "off", "reserved", "allocated", "requested", "retries", "device_allocs"):
        assert getattr(mine, name).tolist() == getattr(plain, name).tolist()


def test_what_a_pool_has_cached_is_not_given_back_unless_it_lends() -> None:
    calls = [(w.ALLOC, 0, 40 * MIB), (w.FREE, 0, 0), (w.ALLOC, 1, 40 * MIB)]
    opened = scopes((0, 1, LAYERS))
    failed = replayed(workload_of(calls), opened, capacity=64 * MIB)
    assert failed.ooms[-1] == 1
    lent = replayed(workload_of(calls), opened, capacity=64 * MIB, use_on_oom=True)
    assert lent.ooms[-1] == 0
    assert replay(workload_of(calls), "caching", capacity=64 * MIB).ooms[-1] == 0


def test_a_scope_counts_as_a_capture_before_torch_2_13() -> None:
    calls = [(w.ALLOC, 0, 40 * MIB), (w.FREE, 0, 0), (w.ALLOC, 1, 40 * MIB)]
    # the cached memory is in the default pool, and a request within a scope cannot release it
    opened = scopes((2, 3, LAYERS))
    for version, ooms in (("2.12", 1), ("2.13", 0)):
        found = replayed(workload_of(calls), opened, capacity=64 * MIB, torch_version=version)
        assert found.ooms[-1] == ooms


def test_what_was_there_at_the_start_is_taken_for_weights() -> None:
    start = Start(
        base=np.array([1 << 30]),
        size=np.array([20 * MIB]),
        pool=np.zeros(1, np.int32),
        stream=np.zeros(1, np.int32),
        small=np.zeros(1, bool),
        expandable=np.zeros(1, bool),
        order=np.zeros(1, np.int64),
        block_range=np.zeros(1, np.int32),
        block_off=np.zeros(1, np.int64),
        block_size=np.array([8 * MIB]),
        block_tensor=np.zeros(1, np.int32),
        block_requested=np.array([8 * MIB]),
        block_pending=np.zeros(1, bool),
    )
    found = replayed(workload_of([(w.ALLOC, 1, 6 * MIB)], start=start), scopes(), log=True)
    assert found.mempools is not None
    assert [pool.reserved_bytes for pool in found.mempools.pools] == [20 * MIB, 20 * MIB, 0, 0]


def test_marks_of_the_hooks_tell_the_scopes() -> None:
    words = [
        (0, "precise_begin"),
        (4, "precise_end"),
        (4, "forward_begin"),
        (4, "forward_end"),
        (5, "step_begin"),
        (5, "forward_begin"),
        (6, "forward_begin"),
        (7, "forward_end"),
        (9, "forward_end"),
        (10, "release"),
        (10, "precise_begin"),
        (12, "precise_end"),
        (12, "step_end"),
        (13, "forward_begin"),
        (14, "forward_end"),
    ]
    marks = HookMarks.of([(at, KINDS.index(kind)) for at, kind in words])
    assert _spans(marks) == [(0, 4, WEIGHTS), (5, 9, LAYERS), (10, 12, OPTIMIZER), (13, 14, LAYERS)]


def test_variables_choose_scopes_and_pools_that_lend() -> None:
    _, opened = training()
    chosen, use_on_oom = MEMPOOL.options("scopes=weights+optimizer,use_on_oom=1,max_split_size_mb:64", opened)
    assert set(chosen.pool.tolist()) == {WEIGHTS, OPTIMIZER}
    assert chosen.bases["layers"] == "none"
    assert use_on_oom
    assert MEMPOOL.effective_conf("scopes=weights,max_split_size_mb:64") == "max_split_size_mb:64"
    for wrong in ("scopes=weight", "use_on_oom=yes", "pools=3", "modules=each"):
        with pytest.raises(MemdiagError):
            MEMPOOL.options(wrong, opened)


@pytest.mark.parametrize("kind", ["cuda", "npu"])
def test_as_a_trace_the_pools_are_told_apart(goldens: Path, kind: str) -> None:
    trace = read(next(goldens.glob(f"{kind}-*-recorded/snapshot.pickle")))
    subject = Subject.of(trace, trace.devices[0])
    policy = MEMPOOL if kind == "cuda" else NPU_MEMPOOL
    opened = policy.prepare(trace, trace.devices[0], subject.workload)
    name = "mempool" if kind == "cuda" else "npu-mempool"
    found = policy.serve(subject.workload, opened, Scenario(name), log=True)
    simulated = as_trace(found, subject.workload, trace, trace.devices[0], kept_start=False).device
    assert found.mempools is not None
    used = {pool.name for pool in found.mempools.pools if pool.reserved_bytes}
    assert (
        len({(int(a), int(b)) for a, b in zip(simulated.groups.pool_major, simulated.groups.pool_minor, strict=True)})
        >= len(used)
        > 1
    )
    for curve in ("reserved", "allocated", "requested"):
        assert simulated.usage[curve].max() == getattr(found, curve).max()


def test_a_program_with_such_pools_holds_what_was_predicted_from_one_without() -> None:
    """The replay of a run without pools predicts the measured memory of a run with pools.

    Both ran on PyTorch's own allocator (program.py).
    """
    folder = Path(__file__).parent
    truth = json.loads((folder / "truth.json").read_text())
    trace = read(folder / "plain.pickle")
    subject = Subject.of(trace, trace.devices[0])
    opened = MEMPOOL.prepare(trace, trace.devices[0], subject.workload)
    found = MEMPOOL.serve(subject.workload, opened, Scenario("mempool"), log=True)
    assert found.mempools is not None
    assert (found.reserved.max(), found.allocated.max()) == (
        truth["peak_reserved_bytes"],
        truth["peak_allocated_bytes"],
    )
    assert found.device_allocs[-1] == truth["device_allocs"]
    assert found.device_frees[-1] == 0  # so the memory of each pool at the end is also its peak
    assert {pool.name: pool.reserved_bytes for pool in found.mempools.pools} == truth["reserved_bytes"]
