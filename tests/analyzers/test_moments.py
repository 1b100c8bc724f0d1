"""The split of what is free at a moment, and the moment that is looked at: the worked example of docs/fragmentation.md, to the byte."""

from pathlib import Path

from memdiag.analyzers.allocator_settings import AllocatorSettings
from memdiag.analyzers.context import Context
from memdiag.analyzers.fit import would_fit
from memdiag.analyzers.moments import fragmentation_at, look
from memdiag.sources import load

MIB = 1 << 20


def test_the_worked_example_adds_up_to_the_byte(example):
    trace, before = example
    device = trace.devices[0]
    usage, split = device.usage_at(before), fragmentation_at(device, before)
    parts = {
        "requested": usage["requested"], "allocated": usage["allocated"], "active": usage["active"], "reserved": usage["reserved"],
        "rounding": split.rounding_bytes, "pending": split.pending_bytes, "stranded": split.stranded_bytes,
        "foreign": split.foreign_bytes, "cache": split.cache_bytes,
    }  # fmt: skip
    assert parts == {
        "requested": 8_389_608, "allocated": 8_389_632, "active": 14_681_088, "reserved": 81_788_928,
        "rounding": 24, "pending": 6_291_456, "stranded": 37_748_736, "foreign": 12_581_888, "cache": 16_777_216,
    }  # fmt: skip
    assert sum(parts[name] for name in ("rounding", "pending", "stranded", "foreign", "cache")) == parts["reserved"] - parts["requested"]
    assert split.reference_request_bytes == 32 * MIB
    assert split.reference_kind == "next request"
    assert split.largest_free_bytes == 24 * MIB


def test_every_number_of_a_split_is_that_after_the_event(example):
    trace, before = example
    split = fragmentation_at(trace.devices[0], before + 1)
    assert split.reference_kind == "this request"
    assert split.largest_free_bytes == 32 * MIB  # the segment just opened for it; what it found is in References
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
    shown = [*device.usage_at(before).values(), split.stranded_bytes, split.foreign_bytes, split.cache_bytes, split.pending_bytes]
    for value in shown:
        assert f"| {value:,} |" in page


def test_the_moment_is_looked_at_before_the_request_takes_its_memory(heap):
    heap.checkerboard()
    opened = heap.segment(2000, 64 * MIB)
    heap.alloc(2000, 64 * MIB)
    trace = heap.trace()
    context = Context()
    here = look(next(iter(context.views(trace))), context, AllocatorSettings.of(trace))
    assert (here.at, here.before) == (opened, opened - 1)
    assert not here.fit.fits
    assert here.fit.largest_free_bytes == 30 * MIB
