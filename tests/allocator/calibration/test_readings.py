"""Facts missing from a recording are inferred from later events: captures, kinds of private pools, release causes."""

from __future__ import annotations

import numpy as np

from memdiag.allocator.calibration.calibrate import described_best
from memdiag.allocator.replay import replay
from memdiag.allocator.workload import ALLOC, CAPTURE, EMPTY_CACHE, FREE, POOL_BEGIN, POOL_END, Workload
from memdiag.trace import schema
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.raw import RawDevice
from memdiag.units import MIB


def recorded(calls, *, capacity=None, conf="", no_split=(), since=0):
    """Returns a recording of calls (op, tensor, size, pool) from call ``since`` on, and the replay it belongs to."""
    op, tensor, size, pool = (np.array([call[k] for call in calls], np.int64) for k in range(4))
    work = Workload(
        op=op.astype(np.int8),
        tensor=tensor.astype(np.int32),
        size=size,
        stream=np.zeros(len(op), np.int32),
        pool=pool.astype(np.int32),
        row=np.arange(len(op)),
        num_rows=len(op),
        num_tensors=int(tensor.max()) + 1,
        streams=np.zeros(1, np.uint64),
        pools=((0, 0), (0, 7)),
        no_split=frozenset(no_split),
        done="now",
    )
    ran = replay(work, "caching", conf=conf, capacity=capacity, log=True)
    log = {name: column[ran.log["call"] >= since] for name, column in ran.log.items()}
    failed = log["action"] == schema.OOM
    raw = RawDevice(
        device=0,
        action=log["action"].astype(np.int8),
        addr=np.where(failed, log["off"], ran.bases[log["seg"]] + log["off"]),
        size=log["size"],
        stream=np.zeros(len(failed), np.int64),
        pool=np.array(work.pools)[log["pool"]],
    )
    settings = {"PYTORCH_CUDA_ALLOC_CONF": conf}
    trace = build_trace(
        RawTrace(
            path="made", format="torch-snapshot", backend="cuda", raws=[raw], torch_version="2.13", settings=settings
        )
    )
    return trace, trace.devices[0], ran


OUTSIDE_AND_IN_A_CAPTURE = [
    (POOL_BEGIN, -1, 0, 1),
    (POOL_END, -1, 0, 1),
    (ALLOC, 0, 30 * MIB, 0),
    (ALLOC, 1, 30 * MIB, 0),
    (FREE, 1, 0, -1),
    (ALLOC, 2, 10 * MIB, 1),  # the driver has no more memory: cached memory is released
    (ALLOC, 3, 20 * MIB, 0),
    (FREE, 3, 0, -1),
    (CAPTURE, -1, 1, 1),
    (ALLOC, 4, 12 * MIB, 1),  # fails, although that much is cached
    (CAPTURE, -1, 0, 1),
    (ALLOC, 5, 1000, 0),
    (ALLOC, 6, 12 * MIB, 1),
]


def test_a_pool_is_used_outside_of_captures_and_in_one():
    trace, device, ran = recorded(OUTSIDE_AND_IN_A_CAPTURE, capacity=64 * MIB)
    assert ran.ooms[-1] == 1
    assert ran.retries[-1] == 2
    workload, found = described_best(trace, device)
    assert found.is_exact
    turned = np.flatnonzero(workload.op == CAPTURE)
    assert workload.size[turned].tolist() == [1, 0]
    assert workload.tensor[turned[0] + 1 : turned[1]].tolist()  # the failed request is in between


def test_an_empty_cache_that_looks_like_a_retry_is_told_by_what_was_there_later():
    calls = [
        (ALLOC, 0, 30 * MIB, 0),
        (FREE, 0, 0, -1),
        (EMPTY_CACHE, -1, 0, -1),
        (ALLOC, 1, 40 * MIB, 0),
        (ALLOC, 2, 2 * MIB, 0),
    ]
    trace, device, _ = recorded(calls)
    assert described_best(trace, device)[1].is_exact


def test_pools_that_are_not_cut_are_told_by_segments_that_others_would_have_spared():
    calls = [
        (POOL_BEGIN, -1, 0, 1),
        (POOL_END, -1, 0, 1),
        (ALLOC, 0, 3 * MIB, 1),
        (ALLOC, 1, 3 * MIB, 1),
        (FREE, 0, 0, -1),
        (ALLOC, 2, 5 * MIB, 1),
        (ALLOC, 3, 3 * MIB, 0),
    ]
    trace, device, ran = recorded(calls, no_split=(1,))
    assert device.usage.allocated[-1] == ran.allocated[-1] == 43 * MIB
    assert device.tensors.block_bytes.tolist() == [20 * MIB, 20 * MIB, 20 * MIB, 3 * MIB]
    workload, found = described_best(trace, device)
    assert found.is_exact
    assert workload.no_split == {1}


def test_pools_that_are_cut_stay_as_they_are():
    calls = [
        (POOL_BEGIN, -1, 0, 1),
        (POOL_END, -1, 0, 1),
        *((ALLOC, k, 7 * MIB, 1) for k in range(4)),  # two fit into a segment, the third does not
    ]
    trace, device, ran = recorded(calls)
    assert device.usage.allocated[-1] == ran.allocated[-1] == 28 * MIB
    assert described_best(trace, device)[1].is_exact


def test_an_expandable_segment_begins_below_what_it_held_when_the_recording_began():
    calls = [
        (ALLOC, 0, 100 * MIB, 0),
        (ALLOC, 1, 100 * MIB, 0),
        (FREE, 0, 0, -1),
        (EMPTY_CACHE, -1, 0, -1),
        (ALLOC, 2, 60 * MIB, 0),  # at the address of the first one: recorded from here on
        (FREE, 1, 0, -1),
        (FREE, 2, 0, -1),
        (EMPTY_CACHE, -1, 0, -1),
        (ALLOC, 3, 40 * MIB, 0),
    ]
    trace, device, ran = recorded(calls, conf="expandable_segments:True", capacity=512 * MIB, since=4)
    assert ran.off[4] == 0
    workload, found = described_best(trace, device)
    assert found.is_exact
    assert workload.start.size.min() == 0
