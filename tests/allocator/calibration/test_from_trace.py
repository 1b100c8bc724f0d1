"""The calls of a program are inferred correctly from each kind of trace."""

from __future__ import annotations

import numpy as np
import pytest

from memdiag.allocator import workload as w
from memdiag.allocator.calibration.from_trace import described, resumed, workload_of
from memdiag.allocator.replay import replay
from memdiag.allocator.result import SKIPPED
from memdiag.sources import load
from memdiag.trace import schema
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.raw import RawDevice
from memdiag.units import MIB

OPS = [
    "alloc",
    "free",
    "empty_cache",
    "record_stream",
    "complete",
    "sync",
    "set_fraction",
    "pool_begin",
    "pool_end",
    "pool_release",
    "reset_peak",
    "external",
    "set_total",
]


@pytest.fixture
def plain(tmp_path):
    """Writes plain events (op, id, size, stream) and returns their workload."""

    def make(*rows, done="now", total=1 << 30):
        op, identity, size, stream = zip(*rows, strict=True)
        file = tmp_path / "events.npz"
        np.savez(
            file,
            op=np.array([OPS.index(name) for name in op], np.int8),
            id=np.array(identity),
            size=np.array(size),
            stream=np.array(stream),
            ops=np.array(OPS),
            total=np.int64(total),
            done=np.array(done),
        )
        trace = load(file)
        return workload_of(trace, trace.devices[0])

    return make


def names(workload):
    return [w.OPS[op] for op in workload.op]


def test_each_row_of_plain_events_is_one_call(plain):
    workload = plain(*((name, 1, 10, 0) for name in OPS), done="manual", total=12345)
    assert names(workload) == [name if name != "reset_peak" else "nothing" for name in OPS]
    assert workload.row.tolist() == list(range(len(OPS)))
    assert (workload.num_rows, workload.done, workload.capacity_bytes) == (len(OPS), "manual", 12345)
    assert len(workload.start.base) == 0


def test_frees_of_what_is_not_there_are_calls_that_are_skipped(plain):
    workload = plain(
        ("free", 1, 0, 0),
        ("alloc", 1, 100, 0),
        ("free", 1, 0, 0),
        ("free", 1, 0, 0),
        ("free", 7, 0, 0),
        ("record_stream", 1, 0, 1),
        ("alloc", 2, 0, 0),
        ("free", 2, 0, 0),
        ("record_stream", 2, 0, 1),
        ("alloc", 1, 50, 0),
        ("record_stream", 1, 0, 1),
        ("free", 1, 0, 0),
    )
    assert workload.num_rows == 12
    assert workload.tensor.tolist() == [-1, 0, 0, -1, -1, -1, -1, -1, -1, 1, 1, 1]
    status = replay(workload, "caching", capacity=1 << 30).status
    assert np.flatnonzero(status == SKIPPED).tolist() == [0, 3, 4, 5, 7, 8]


def test_an_id_that_is_made_twice_is_two_tensors(plain):
    workload = plain(("alloc", 1, 100, 0), ("alloc", 1, 200, 0), ("free", 1, 0, 0), ("free", 1, 0, 0))
    assert workload.tensor.tolist() == [0, 1, 1, -1]
    found = replay(workload, "caching", capacity=1 << 30)
    assert found.allocated.tolist() == [512, 1024, 512, 512]


def test_ids_below_zero_are_ids(plain):
    workload = plain(("alloc", -5, 100, 0), ("alloc", 0, 100, 0), ("record_stream", -5, 0, 1), ("free", -5, 0, 0))
    assert workload.tensor.tolist() == [0, 1, 0, 0]


def test_streams_stand_in_unsigned_order(plain):
    workload = plain(
        ("alloc", 1, 100, 3), ("alloc", 2, 100, 0), ("alloc", 3, 100, -1), ("complete", 0, 0, -1), ("complete", 0, 0, 3)
    )
    assert workload.streams.tolist() == [0, 3, 2**64 - 1]
    assert workload.stream.tolist() == [1, 0, 2, -1, 1]


def test_pools_are_numbered_from_the_default_one(plain):
    workload = plain(
        ("pool_begin", 9, 0, -1),
        ("alloc", 1, 5, 0),
        ("pool_end", 9, 0, 0),
        ("pool_begin", 0, 0, 0),
        ("pool_end", 0, 0, 0),
    )
    assert len(workload.pools) == 3
    assert workload.pools[0] == (0, 0)
    assert workload.pool.tolist() == [2, -1, 2, 1, 1]
    assert workload.stream.tolist()[0] == -1


def test_both_halves_of_a_free_are_one_call_unless_a_stream_had_to_be_waited_for(goldens):
    trace = load(goldens / "cuda-2.13.0-train" / "snapshot.pickle")
    assert set(names(workload_of(trace, trace.devices[0]))) == {"alloc", "free"}
    trace = load(goldens / "cuda-2.13.0-streams" / "snapshot.pickle")
    said = names(workload_of(trace, trace.devices[0]))
    assert said.count("free_requested") > said.count("free_completed") > 0


def test_releases_that_no_request_follows_were_asked_for(goldens):
    trace = load(goldens / "cuda-2.13.0-expandable" / "snapshot.pickle")
    assert names(workload_of(trace, trace.devices[0])).count("empty_cache") == 2
    trace = load(goldens / "cuda-2.13.0-retries" / "snapshot.pickle")
    assert "empty_cache" not in names(workload_of(trace, trace.devices[0]))


def test_the_start_is_what_was_there(goldens):
    trace = load(goldens / "cuda-2.13.0-late" / "snapshot.pickle")
    device = trace.devices[0]
    start = workload_of(trace, device).start
    assert start.size.sum() == device.start["reserved"]
    assert start.block_size.sum() == device.start["active"]
    assert (np.diff(start.base) > 0).all()
    assert (device.tensors.alloc_at[start.block_tensor] == -1).all()


def test_a_workload_goes_on_from_any_moment(goldens):
    trace = load(goldens / "cuda-2.13.0-train" / "snapshot.pickle")
    device = trace.devices[0]
    workload = workload_of(trace, device)
    for at in (0, 200, 800):
        rest = resumed(workload, device, at)
        assert rest.start.size.sum() == device.usage.reserved[at]
        assert rest.start.block_size.sum() == device.usage.active[at]
        assert (rest.row > at).all()
        assert replay(rest, "caching").reserved[-1] == device.usage.reserved[workload.row[-1]]


def recording(*entries, **columns):
    action = np.array([schema.ACTION_CODES[name] for name, _, _ in entries], np.int8)
    addr, size = (np.array([row[k] for row in entries], np.int64) for k in (1, 2))
    raw = RawDevice(device=0, action=action, addr=addr, size=size, **columns)
    trace = build_trace(
        RawTrace(path="made", format="torch-snapshot", backend="cuda", raws=[raw], torch_version="2.13")
    )
    return trace, trace.devices[0]


A, B, C = (1 << 40, (1 << 40) + 64 * MIB, (1 << 40) + 128 * MIB)


def test_what_comes_free_within_a_retry_does_so_after_the_request_has_looked():
    """A free that completes during a retry comes after the search of the request, which gets a new segment.

    The block at A waits for a stream until the retry synchronises.
    """
    trace, device = recording(
        ("segment_alloc", A, 40 * MIB),
        ("alloc", A, 40 * MIB),
        ("segment_alloc", B, 20 * MIB),
        ("alloc", B, 15 * MIB),
        ("free_requested", A, 40 * MIB),
        ("free_completed", A, 40 * MIB),
        ("alloc", A, 39 * MIB),
        ("free_requested", A, 39 * MIB),
        ("free_requested", B, 15 * MIB),
        ("free_completed", B, 15 * MIB),
        ("free_completed", A, 39 * MIB),
        ("segment_free", B, 20 * MIB),
        ("segment_free", A, 40 * MIB),
        ("segment_alloc", C, 60 * MIB),
        ("alloc", C, 60 * MIB),
    )
    workload, limits = described(trace, device)
    assert names(workload)[-2:] == ["alloc", "free_completed"]
    assert workload.row.tolist()[-2:] == [14, 14]
    assert limits.num_refused == 1
    assert 60 * MIB <= limits.capacity_bytes < 120 * MIB
    found = replay(workload, "caching", capacity=limits.capacity_bytes)
    assert found.retries[-1] == 1
    assert found.reserved[-1] == 60 * MIB


def test_a_failed_request_is_given_up_where_the_program_went_on():
    entries = [("segment_alloc", A, 20 * MIB), ("alloc", A, 5 * MIB), ("oom", 8 * MIB, 64 * MIB)]
    trace, device = recording(*entries)
    workload, limits = described(trace, device)
    assert names(workload) == ["alloc", "alloc"]
    assert limits.capacity_bytes == 28 * MIB
    trace, device = recording(*entries, ("alloc", A + 5 * MIB, 2 * MIB))
    assert names(workload_of(trace, device)) == ["alloc", "alloc", "free", "alloc"]
    assert workload_of(trace, device).tensor.tolist() == [0, 2, 2, 1]


def test_failures_that_contradict_each_other_mean_that_others_took_memory():
    trace, device = recording(
        ("segment_alloc", A, 20 * MIB),
        ("alloc", A, 5 * MIB),
        ("oom", 4 * MIB, 64 * MIB),
        ("oom", 40 * MIB, 64 * MIB),
        capacity_bytes=100 * MIB,
    )
    workload, limits = described(trace, device)
    assert limits.is_known
    assert limits.steps[:, 1].tolist() == [76 * MIB, 40 * MIB]
    assert replay(workload, "caching", capacity=100 * MIB).ooms[-1] == 2


def test_tensors_of_a_profile_are_made_and_freed(tmp_path):
    file = tmp_path / "plan.csv"
    file.write_text("id,lower,upper,size\n1,0,4,1000000\n2,1,3,5000000\n3,3,5,100\n")
    trace = load(file)
    workload = workload_of(trace, trace.devices[0])
    assert names(workload) == ["alloc", "alloc", "free", "alloc", "free", "free"]
    assert replay(workload, "caching").allocated[-1] == 0
