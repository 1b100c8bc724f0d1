"""A replay of a recording with its own settings matches every address and segment event, or explains the difference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memdiag.allocator.calibration.calibrate import calibrate, described_best
from memdiag.allocator.calibration.comparing import RecordedColumns
from memdiag.allocator.calibration.from_trace import described
from memdiag.allocator.replay import serve
from memdiag.allocator.versions.rules import LAST_VERIFIED
from memdiag.allocator.workload import ALLOC, EMPTY_CACHE
from memdiag.settings.model import parse_version
from memdiag.sources import load
from memdiag.trace import schema
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.table import Table
from memdiag.units import GIB, MIB

# The trace of this file does not match its segments: no segment contains any of its blocks.
NOT_OF_ONE_PIECE = {"facebookresearch__mosaic__test__snapshots__output.pickle"}


def calibrations(path: Path):
    trace = load(path)
    return [
        (device, calibrate(trace, device)) for device in trace.devices if device.has_addresses and device.num_events
    ]


def test_goldens_are_replayed_exactly(golden):
    for device, found in calibrations(golden / "snapshot.pickle"):
        assert found.first is None
        assert found.is_exact
        assert found.exact == found.events
        assert (found.error_bytes, found.peak_error_bytes) == (0, 0)
        requests = np.isin(device.events.action, (schema.ALLOC, schema.OOM))
        assert found.num_requests == np.count_nonzero(requests)


def test_real_snapshots_are_replayed_exactly(shared):
    files = sorted(path for path in (shared / "data" / "snapshots").iterdir() if path.suffix in {".pickle", ".pkl"})
    if not files:
        pytest.skip("the data folder ../shared beside the repository holds no snapshots")
    inexact, compared = set(), 0
    for path in files:
        for _, found in calibrations(path):
            compared += found.num_requests or 0
            if not found.is_exact:
                inexact.add(path.name)
                assert found.first is not None
                assert "were not saved at the same time" in found.first.cause
    assert inexact <= NOT_OF_ONE_PIECE
    assert compared > 100_000


def test_the_newest_golden_is_the_newest_version_that_can_be_simulated(goldens):
    found = [parse_version(path.name.split("-")[1]) for path in goldens.glob("cuda-*")]
    assert max(found) == LAST_VERIFIED


def test_one_difference_counts_once(goldens):
    trace = load(goldens / "cuda-2.13.0-train" / "snapshot.pickle")
    device = trace.devices[0]
    workload, _ = described(trace, device)
    wrong = np.flatnonzero(workload.op == ALLOC)[100]
    runs = []

    def astray(part, *arguments, **options):
        """Replays with the engine, but in the first run shifts one block and all later ones by 512 bytes."""
        result = serve(part, *arguments, **options)
        runs.append(len(part.op))
        if len(runs) > 1:
            return result
        off = result.off.copy()
        off[wrong:] += np.where(result.seg[wrong:] >= 0, 512, 0)
        return replace(result, off=off)

    found = calibrate(trace, device, astray)
    assert found.num_differences == 1
    assert found.exact_requests == found.num_requests - 1
    assert found.exact_segment_events == found.num_segment_events
    assert found.first.event == workload.row[wrong]
    assert found.first.what == "address"
    assert sum(runs[1:]) <= 2 * len(workload.op)


def test_a_recording_that_never_matches_is_not_compared_to_its_end(goldens):
    trace = load(goldens / "cuda-2.13.0-train" / "snapshot.pickle")
    runs = []

    def astray(part, *arguments, **options):
        """Replays with the engine, but shifts every block."""
        result = serve(part, *arguments, **options)
        runs.append(len(part.op))
        return replace(result, off=result.off + np.where(result.seg >= 0, 512, 0))

    found = calibrate(trace, trace.devices[0], astray)
    assert found.num_requests == calibrate(trace, trace.devices[0]).num_requests > 100
    assert found.num_differences == 100
    assert found.exact_requests == 0


def test_what_the_replay_does_beyond_the_recording_is_not_exact(goldens):
    trace = load(goldens / "cuda-2.13.0-train" / "snapshot.pickle")
    device = trace.devices[0]

    def flushing(part, *arguments, **options):
        """Replays with the engine, but in the first run adds an empty_cache in the middle."""
        if len(part.op) == len(described(trace, device)[0].op):
            op = part.op.copy()
            middle = np.flatnonzero(op != ALLOC)[150]
            op[middle] = EMPTY_CACHE
            part = replace(part, op=op)
        return serve(part, *arguments, **options)

    found = calibrate(trace, device, flushing)
    assert not found.is_exact
    assert found.exact < found.events
    assert found.error_bytes > 0


@pytest.mark.parametrize(
    ("name", "capacity"),
    [
        ("cuda-2.13.0-oom", 512 * MIB),
        ("cuda-2.13.0-oom-dump", 512 * MIB),
        ("cuda-2.13.0-retries", GIB),
        ("npu-2.13.0-oom", 512 * MIB),
        ("cuda-2.13.0-train", None),
    ],
)
def test_what_was_refused_tells_how_much_there_was(goldens, name, capacity):
    trace = load(goldens / name / "snapshot.pickle")
    _, limits = described(trace, trace.devices[0])
    if capacity is None:
        assert limits.capacity_bytes is None
    else:
        assert capacity - 64 * MIB < limits.capacity_bytes <= capacity
        assert not limits.is_known
        assert limits.num_refused


def test_garbage_collections_tell_the_limit_of_the_process(goldens):
    """Garbage collections in a recording give bounds for the memory limit of the process.

    The golden ran on 3 GiB with a memory fraction of 0.5, and garbage collection started at 0.6 of that.
    """
    ((_, found),) = calibrations(goldens / "cuda-2.13.0-gc-threshold" / "snapshot.pickle")
    low, high = found.limits.limit_range
    assert low <= found.limits.limit_bytes < high
    assert low <= 1.5 * GIB
    assert found.limits.fraction is not None


def device_of(actions, *, segments=None, blocks=None, **columns):
    action = np.array([schema.ACTION_CODES[name] for name, _, _ in actions], np.int8)
    addr, size = (np.array([row[k] for row in actions], np.int64) for k in (1, 2))
    raw = RawDevice(device=0, action=action, addr=addr, size=size, segments=segments, blocks=blocks, **columns)
    trace = build_trace(
        RawTrace(path="made", format="torch-snapshot", backend="cuda", raws=[raw], torch_version="2.13")
    )
    return trace, trace.devices[0]


def test_a_block_outside_of_all_segments_is_said_to_be_so():
    segments = Table(
        schema.SEGMENTS, {name: np.zeros(1, column.dtype) for name, column in schema.SEGMENTS.items()}
    ).replace(address=np.array([1 << 40]), total_size=np.array([2 * MIB]))
    trace, device = device_of([("alloc", 1 << 30, 1000), ("alloc", 1 << 40, 1000)], segments=segments)
    found = calibrate(trace, device)
    assert not found.is_exact
    assert found.first.event == 0
    assert "no segment in the file" in found.first.cause


def test_a_trace_without_addresses_is_not_calibrated(tmp_path):
    file = tmp_path / "plan.csv"
    file.write_text("id,lower,upper,size\n1,0,4,1000000\n2,1,3,5000000\n")
    trace = load(file)
    found = calibrate(trace, trace.devices[0])
    assert (found.exact, found.exact_fraction, found.error_bytes, found.is_exact) == (None, None, None, False)


def test_a_call_of_empty_cache_that_looks_like_a_retry_is_told_by_what_the_replay_lacks():
    """A release is inferred to be empty_cache if the replay shows that the request needed no retry.

    A free block of 40 MiB could have served the request of 39 MiB, but the recording releases all cached memory and
    reserves a new segment.
    """
    a, b, c = (1 << 40, (1 << 40) + 256 * MIB, (1 << 40) + 512 * MIB)
    entries = [
        ("segment_alloc", a, 100 * MIB),
        ("alloc", a, 100 * MIB),
        ("segment_alloc", b, 40 * MIB),
        ("alloc", b, 40 * MIB),
        ("free_requested", a, 100 * MIB),
        ("free_completed", a, 100 * MIB),
        ("free_requested", b, 40 * MIB),
        ("free_completed", b, 40 * MIB),
        ("segment_free", b, 40 * MIB),
        ("segment_free", a, 100 * MIB),
        ("segment_alloc", c, 40 * MIB),
        ("alloc", c, 39 * MIB),
    ]
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "max_split_size": 64 * MIB}
    trace, device = device_of(entries)
    trace = replace(trace, settings=settings, layout=replace(trace.layout, max_split=64 * MIB))
    workload, found = described_best(trace, device)
    assert found.is_exact
    assert np.count_nonzero(workload.op == EMPTY_CACHE) == 1
    assert found.limits.capacity_bytes is None


def test_a_second_range_of_addresses_beside_a_full_one_is_seen():
    """Pages far after the mapped ones belong to a second range of addresses."""
    trace, device = device_of(
        [
            ("segment_map", 1 << 40, 20 * MIB),
            ("alloc", 1 << 40, 20 * MIB),
            ("segment_map", (1 << 40) + 20 * MIB, 20 * MIB),
            ("alloc", (1 << 40) + 20 * MIB, 20 * MIB),
            ("segment_map", 1 << 41, 40 * MIB),
            ("alloc", 1 << 41, 40 * MIB),
        ]
    )
    workload, _ = described(trace, device)
    assert RecordedColumns.of(workload, device).bases.tolist() == [1 << 40, 1 << 41]
