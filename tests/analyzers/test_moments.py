"""The default moment of a report is chosen as documented, and the split of free memory at a moment is exact.

The split is checked to the byte on the worked example of docs/fragmentation.md.
"""

from pathlib import Path

import pytest

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.fit import would_fit
from memdiag.analyzers.support.moments import fragmentation_at, look
from memdiag.errors import MemdiagError
from memdiag.sources import load
from memdiag.trace.moments import choose_moment, has_history, parse_moment

MIB = 1 << 20


def test_the_worked_example_adds_up_to_the_byte(example):
    trace, before = example
    device = trace.devices[0]
    usage, split = device.usage_at(before), fragmentation_at(device, before)
    parts = {
        "requested": usage["requested"],
        "allocated": usage["allocated"],
        "active": usage["active"],
        "reserved": usage["reserved"],
        "rounding": split.rounding_bytes,
        "pending": split.pending_bytes,
        "stranded": split.stranded_bytes,
        "foreign": split.foreign_bytes,
        "cache": split.cache_bytes,
    }
    assert parts == {
        "requested": 8_389_608,
        "allocated": 8_389_632,
        "active": 14_681_088,
        "reserved": 81_788_928,
        "rounding": 24,
        "pending": 6_291_456,
        "stranded": 37_748_736,
        "foreign": 12_581_888,
        "cache": 16_777_216,
    }
    assert (
        sum(parts[name] for name in ("rounding", "pending", "stranded", "foreign", "cache"))
        == parts["reserved"] - parts["requested"]
    )
    assert split.reference_request_bytes == 32 * MIB
    assert split.reference_kind == "next request"
    assert split.largest_free_bytes == 24 * MIB


def test_every_number_of_a_split_is_that_after_the_event(example):
    trace, before = example
    split = fragmentation_at(trace.devices[0], before + 1)
    assert split.reference_kind == "this request"
    # This is the state after the new segment was reserved; References has the state before it.
    assert split.largest_free_bytes == 32 * MIB
    assert trace.devices[0].references.largest_free[-1] == 24 * MIB


def test_a_snapshot_without_a_trace_is_seen_from_its_largest_tensor(root):
    trace = load(Path(root) / "tests" / "goldens" / "cuda-2.13.0-no-trace" / "snapshot.pickle")
    device = trace.devices[0]
    split = fragmentation_at(device, -1)
    assert split.reference_kind == "largest live"
    assert split.reference_request_bytes == device.tensors.block_bytes.max()
    usage = device.end
    parts = (split.rounding_bytes, split.pending_bytes, split.stranded_bytes, split.foreign_bytes, split.cache_bytes)
    assert sum(parts) == usage["reserved"] - usage["requested"]


def test_free_ranges_before_requests_are_those_of_the_topology(golden):
    trace = load(golden / "snapshot.pickle")
    for device in trace.devices:
        references = device.references
        for row in range(0, len(references), 5):
            topology = device.topology(int(references.opened_at[row]) - 1)
            assert would_fit(topology, int(references.group[row]), 0).largest_free_bytes == references.largest_free[row]


def test_the_page_shows_the_numbers_of_the_worked_example(example, root):
    trace, before = example
    page = (Path(root) / "docs" / "fragmentation.md").read_text(encoding="utf-8")
    device = trace.devices[0]
    split = fragmentation_at(device, before)
    shown = [
        *device.usage_at(before).values(),
        split.stranded_bytes,
        split.foreign_bytes,
        split.cache_bytes,
        split.pending_bytes,
    ]
    for value in shown:
        assert f"| {value:,} |" in page


def test_the_moment_is_looked_at_before_the_request_takes_its_memory(heap):
    heap.checkerboard()
    opened = heap.segment(2000, 64 * MIB)
    served = heap.alloc(2000, 64 * MIB)
    trace = heap.trace()
    here = look(next(iter(Context().views(trace))), AllocatorSettings.of(trace))
    assert (here.at, here.before) == (served, opened - 1)
    assert not here.fit.fits
    assert here.fit.largest_free_bytes == 30 * MIB


def chosen(heap, at="default", **options):
    return choose_moment(heap.trace(**options).devices[0], at)


def train_step(heap):
    """Adds a step with two maxima of reserved memory: at a large request, and later at a small one with little live
    memory.

    Returns the events of both requests.
    """
    heap.segment(0, 1000 * MIB)
    heap.alloc(0, 600 * MIB)
    heap.segment(2000, 400 * MIB)
    most = heap.alloc(2000, 400 * MIB)
    heap.free(2000, 400 * MIB)
    heap.free(0, 600 * MIB)
    heap.segment(3000, 2 * MIB)
    last = heap.alloc(3000, 512)
    return most, last


def test_the_peak_is_where_most_is_allocated_among_the_events_near_the_reserved_peak(heap):
    most, last = train_step(heap)
    device = heap.trace().devices[0]
    assert device.peak("reserved") == last - 1  # the new segment, before the allocation of its tensor
    assert choose_moment(device) == (most, "peak")
    assert choose_moment(device, "reserved") == (last, "reserved")
    assert choose_moment(device, "allocated") == (most, "allocated")
    assert choose_moment(device, "end") == (device.num_events - 1, "end")


def test_events_further_than_two_percent_below_the_reserved_peak_are_not_the_peak(heap):
    heap.segment(0, 970 * MIB)
    heap.alloc(0, 970 * MIB)
    heap.free(0, 970 * MIB)
    heap.segment(2000, 30 * MIB)
    later = heap.alloc(2000, 30 * MIB)
    assert chosen(heap) == (later, "peak")


def test_the_last_failed_allocation_comes_before_the_peak(heap):
    train_step(heap)
    heap.oom(900 * MIB)
    last = heap.oom(500 * MIB)
    assert chosen(heap) == chosen(heap, "oom") == (last, "oom")
    assert chosen(heap, "peak").kind == "peak"
    assert chosen(heap, last) == (last, "oom")
    assert chosen(heap, 0) == (0, "event")


def test_names_and_numbers_of_moments_are_read():
    assert [parse_moment(text) for text in ("oom", " Peak ", "1,204", "-1")] == ["oom", "peak", 1204, -1]
    for wrong in ("", "noon", "1.5", "-2", "9" * 20):
        with pytest.raises(MemdiagError, match="does not know this moment"):
            parse_moment(wrong)


def test_at_the_default_moment_nearly_all_of_the_allocated_peak_is_live(shared):
    found = []
    for path in sorted((shared / "data/snapshots").iterdir()):
        for device in load(path).devices:
            if has_history(device):
                peak = max(int(device.usage.allocated.max()), device.start["allocated"])
                found.append(device.usage_at(choose_moment(device).event)["allocated"] >= 0.98 * peak)
    assert len(found) >= 55
    assert sum(found) >= 50
