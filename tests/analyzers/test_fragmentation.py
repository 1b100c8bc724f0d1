from pathlib import Path

import numpy as np
import pytest

from memdiag.analyzers import fragmentation, rounding
from memdiag.analyzers.allocator_settings import AllocatorSettings
from memdiag.analyzers.context import Context
from memdiag.analyzers.fit import would_fit
from memdiag.analyzers.moments import fragmentation_at, look
from memdiag.analyzers.pinning import idle_by_group, pinned
from memdiag.sources import load
from memdiag.trace.layout import Layout

MIB = 1 << 20
PAGE = 2 * MIB - 512  # the tail that an NPU leaves behind a multiple of 2 MiB


def findings(trace, **options):
    return {finding.code: finding for finding in fragmentation.analyze(trace, Context(**options))}


def numbers(finding):
    return {evidence.what: evidence.value for evidence in finding.evidence}


def number(finding, words):
    return next(value for what, value in numbers(finding).items() if words in what)


def checkerboard(heap, survivors=8, temporary=30, kept=10, at=0):
    """A segment for each pair of a tensor that goes and one that stays."""
    size = temporary + kept
    for i in range(survivors):
        start = at + i * 2 * size
        heap.segment(start, size * MIB, where="f1")
        heap.alloc(start, temporary * MIB, where="f1")
        heap.alloc(start + temporary, kept * MIB, where="f2")
    for i in range(survivors):
        heap.free(at + i * 2 * size, temporary * MIB)
    return at + survivors * 2 * size


@pytest.fixture
def example(heap):
    """The worked example of docs/fragmentation.md; the last event stands just before X."""
    heap.segment(0, 40 * MIB)
    heap.alloc(0, 40 * MIB)
    heap.free(0, 40 * MIB)
    heap.alloc(0, 12 * MIB, where="a1")
    heap.alloc(12, 4 * MIB, where="b2")
    heap.alloc(16, 24 * MIB, where="c3")
    heap.segment(100, 16 * MIB)
    heap.alloc(100, 16 * MIB)
    heap.free(100, 16 * MIB)
    heap.free(0, 12 * MIB)
    heap.free(16, 24 * MIB)
    heap.segment(200, 2 * MIB)
    heap.alloc(200, 1000)
    heap.segment(300, 20 * MIB, stream=7)
    heap.alloc(300, 4 * MIB, stream=7)
    heap.alloc(304, 6 * MIB, stream=7)
    before = heap.free(304, 6 * MIB, stream=7, pending=True)
    heap.segment(400, 32 * MIB)
    heap.alloc(400, 32 * MIB, where="x9")
    return heap.trace(), before


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


def test_pieces_in_part_use_hold_what_is_stranded_or_foreign_or_fits(golden):
    trace = load(golden / "snapshot.pickle")
    settings = AllocatorSettings.of(trace)
    for view in Context().views(trace):
        device = view.device
        for at in range(0, device.num_events, max(device.num_events // 7, 1)):
            row = int(device.usage.reference[at])
            if row < 0:
                continue
            topology, group = device.topology(at), int(device.references.group[row])
            idle = idle_by_group(view, topology, settings)
            assert sum(size for other, size in idle.items() if other != group) == device.usage.foreign[at]
            assert idle.get(group, 0) >= device.usage.stranded[at]


def test_the_page_shows_the_numbers_of_the_worked_example(example, root):
    trace, before = example
    page = (Path(root) / "docs" / "fragmentation.md").read_text(encoding="utf-8")
    device = trace.devices[0]
    split = fragmentation_at(device, before)
    shown = [*device.usage_at(before).values(), split.stranded_bytes, split.foreign_bytes, split.cache_bytes, split.pending_bytes]
    for value in shown:
        assert f"| {value:,} |" in page


def test_what_stands_in_the_way_of_the_worked_example(example):
    trace, before = example
    device = trace.devices[0]
    topology = device.topology(before)
    reference = int(device.usage.reference[before])
    fit = would_fit(topology, int(device.references.group[reference]), 32 * MIB)
    assert (fit.fits, fit.missing_bytes, fit.num_free, fit.free_bytes) == (False, 8 * MIB, 3, 52 * MIB)  # S1's two and the whole of S2
    assert fit.between_bytes == 4 * MIB
    assert [trace.stacks.label(int(device.tensors.stack[row])) for row in fit.between] == ["train.py:2 b2"]


def test_a_request_fits_where_one_range_is_large_enough(example):
    trace, before = example
    device = trace.devices[0]
    fit = would_fit(device.topology(before), int(device.references.group[device.usage.reference[before]]), 24 * MIB)
    assert fit.fits
    assert fit.missing_bytes == 0
    assert not len(fit.between)


def test_no_range_is_named_where_no_segment_is_as_long_as_the_request(example):
    trace, before = example
    device = trace.devices[0]
    fit = would_fit(device.topology(before), int(device.references.group[device.usage.reference[before]]), 41 * MIB)
    assert fit.range_bytes == 0
    assert not len(fit.between)


def slow_cheapest(topology, group, request):
    """Every run of blocks of every segment, one by one."""
    best = None
    segment, size, tensor = (topology.blocks[name] for name in ("segment", "size", "tensor"))
    for i in range(len(size)):
        for j in range(i, len(size)):
            same = segment[j] == segment[i] and topology.segments["group"][segment[i]] == group
            if same and size[i : j + 1].sum() >= request:
                cost = int(size[i : j + 1][tensor[i : j + 1] >= 0].sum())
                best = cost if best is None else min(best, cost)
    return best


@pytest.mark.parametrize("seed", range(8))
def test_the_cheapest_range_is_the_one_a_slow_search_finds(seed, heap):
    random = np.random.default_rng(seed)
    for number_of in range(3):
        start = number_of * 200
        heap.segment(start, 100 * MIB)
        sizes = random.integers(2, 9, 12)
        offsets = np.cumsum(sizes) - sizes
        for offset, size in zip(offsets, sizes, strict=True):
            heap.alloc(start + int(offset), int(size) * MIB)
        for offset, size in zip(offsets, sizes, strict=True):
            if random.random() < 0.5:
                heap.free(start + int(offset), int(size) * MIB)
    trace = heap.trace()
    topology = trace.devices[0].topology(trace.num_events - 1)
    group = int(topology.segments["group"][0])
    for request in (10 * MIB, 30 * MIB, 70 * MIB, 100 * MIB):
        fit = would_fit(topology, group, request)
        if fit.fits:
            continue
        assert fit.between_bytes == slow_cheapest(topology, group, request)


def test_an_error_that_one_piece_would_have_avoided_is_critical(heap):
    checkerboard(heap)
    heap.oom(64 * MIB, device_free=MIB, where="x7")
    found = findings(heap.trace())["MD201"]
    assert found.severity == "critical"
    assert number(found, "asked for") == 64 * MIB
    assert number(found, "(stranded)") == 240 * MIB
    assert number(found, "missing") == 34 * MIB
    assert number(found, "outside the allocator") == MIB
    assert "64.00 MiB" in found.title
    assert "240.00 MiB" in found.title
    assert found.fixes[0].change == "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert found.saving is None


def test_an_error_is_not_fragmentation_where_little_is_free(heap):
    checkerboard(heap, survivors=2)
    heap.oom(500 * MIB, device_free=MIB)
    found = findings(heap.trace())
    assert "MD201" not in found
    assert found["MD206"].severity == "critical"
    assert number(found["MD206"], "free in the allocator") == 60 * MIB


def test_what_the_driver_has_left_counts_towards_the_request(heap):
    checkerboard(heap, survivors=2)
    heap.oom(80 * MIB, device_free=30 * MIB)
    assert findings(heap.trace())["MD201"].severity == "critical"


def test_an_error_with_enough_left_on_the_device_is_a_limit(heap):
    checkerboard(heap, survivors=2)
    heap.oom(500 * MIB, device_free=4096 * MIB)
    found = findings(heap.trace(capacity_bytes=8192 * MIB))["MD206"]
    assert "limit" in found.title
    assert number(found, "held outside the allocator") == (8192 - 4096 - 80) * MIB
    assert any("limit" in fix.title for fix in found.fixes)


def test_the_error_with_most_to_spare_is_looked_at(heap):
    heap.segment(0, 40 * MIB)
    heap.alloc(0, 40 * MIB)
    heap.oom(500 * MIB)
    checkerboard(heap, at=100)
    last = heap.oom(64 * MIB)
    found = findings(heap.trace())["MD201"]
    assert f"event {last}" in found.evidence[0].where
    assert number(found, "out-of-memory errors in the trace") == 2


def test_a_chosen_event_is_looked_at_whatever_failed(heap):
    checkerboard(heap)
    heap.segment(2000, 64 * MIB)
    chosen = heap.alloc(2000, 64 * MIB)
    heap.oom(400 * MIB)
    assert findings(heap.trace(), at=chosen)["MD201"].severity == "warning"


def test_stranded_bytes_at_the_peak(heap):
    checkerboard(heap)
    heap.segment(2000, 64 * MIB)
    heap.alloc(2000, 64 * MIB, where="x7")
    found = findings(heap.trace())["MD201"]
    assert found.severity == "warning"
    assert number(found, "(stranded)") == 240 * MIB
    assert number(found, "largest of 8 free pieces") == 30 * MIB
    assert number(found, "taken by 1 of 9 requests") == 64 * MIB
    assert found.weight_bytes == 240 * MIB


def test_the_telling_request_near_the_peak_is_chosen_not_a_tiny_last_one(heap):
    checkerboard(heap)
    heap.segment(2000, 64 * MIB)
    heap.alloc(2000, 64 * MIB, where="x7")
    heap.segment(3000, 2 * MIB)
    heap.alloc(3000, 512, where="tiny8")
    found = findings(heap.trace())["MD201"]
    assert number(found, "request it is seen from") == 64 * MIB


def test_little_that_is_stranded_is_no_finding(heap):
    heap.segment(0, 1000 * MIB)
    heap.alloc(0, 1000 * MIB)
    heap.segment(2000, 40 * MIB)
    heap.alloc(2000, 30 * MIB)
    heap.alloc(2030, 10 * MIB)
    heap.free(2000, 30 * MIB)
    heap.segment(3000, 64 * MIB)
    heap.alloc(3000, 64 * MIB)
    assert "MD201" not in findings(heap.trace())


def test_what_is_set_already_is_not_recommended(heap):
    heap.segment(0, 400 * MIB, expandable=True)
    for i in range(20):
        heap.alloc(i * 20, 18 * MIB)
        heap.alloc(i * 20 + 18, 2 * MIB)
    for i in range(20):
        heap.free(i * 20, 18 * MIB)
    heap.oom(64 * MIB)
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "expandable_segments": True}
    found = findings(heap.trace(settings=settings, layout=Layout(expandable=True)))
    changes = [fix.change for fix in found["MD201"].fixes]
    assert not any(change.endswith("=expandable_segments:True") for change in changes)
    assert "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,large_segment_size_mb:12" in changes


def test_the_line_to_paste_keeps_what_is_set_and_drops_what_an_npu_cannot_combine(heap):
    checkerboard(heap)
    heap.oom(64 * MIB)
    text = "max_split_size_mb:128,base_addr_aligned_kb:0"
    found = findings(heap.trace(backend="npu", settings={"PYTORCH_NPU_ALLOC_CONF": text}))["MD201"]
    assert found.fixes[0].change == "export PYTORCH_NPU_ALLOC_CONF=base_addr_aligned_kb:0,expandable_segments:True"
    assert "max_split_size_mb" in found.fixes[0].caveat


def test_segments_pinned_by_few_bytes_are_ranked_by_what_would_come_free(heap):
    for i in range(6):
        where, kept = ("small3", 1) if i < 4 else ("large4", 3)
        heap.segment(i * 100, 42 * MIB, where="f1")
        heap.alloc(i * 100, (42 - kept) * MIB, where="f1")
        heap.alloc(i * 100 + 42 - kept, kept * MIB, where=where)
    for i in range(6):
        heap.free(i * 100, (41 if i < 4 else 39) * MIB)
    heap.segment(2000, 64 * MIB)
    heap.alloc(2000, 64 * MIB)
    found = findings(heap.trace())["MD202"]
    assert found.severity == "warning"
    assert found.weight_bytes == (4 * 41 + 2 * 39) * MIB
    pins = [evidence for evidence in found.evidence if evidence.what.startswith("would come free")]
    assert [(pin.value, pin.where) for pin in pins] == [(164 * MIB, "train.py:3 small3"), (78 * MIB, "train.py:4 large4")]
    assert "4 segments but for 4 tensors of 4.00 MiB" in pins[0].what
    assert "train.py:3 small3" in found.fixes[-1].title


def test_the_longest_lived_tensor_of_a_piece_is_its_pin(heap):
    heap.segment(0, 80 * MIB)
    heap.alloc(0, 70 * MIB)
    heap.alloc(70, 2 * MIB, where="short3")
    heap.alloc(72, 8 * MIB, where="long4")
    heap.free(0, 70 * MIB)
    heap.segment(200, 90 * MIB)
    at = heap.alloc(200, 90 * MIB)
    heap.free(70, 2 * MIB)
    trace = heap.trace()
    view = next(iter(Context(at=at).views(trace)))
    found = pinned(view, trace.devices[0].topology(at), AllocatorSettings.of(trace), -1, 0)
    assert [(pin.label, pin.held_bytes, pin.tensor_bytes) for pin in found.pins] == [("train.py:4 long4", 70 * MIB, 8 * MIB)]


def test_pages_of_expandable_segments_are_pinned_one_by_one(heap):
    heap.segment(0, 100 * MIB, expandable=True)
    heap.alloc(0, 30 * MIB)
    heap.alloc(30, 2 * MIB, where="pin3")
    heap.alloc(32, 68 * MIB)
    heap.free(0, 30 * MIB)
    last = heap.free(32, 68 * MIB)
    trace = heap.trace(layout=Layout(expandable=True))
    view = next(iter(Context(at=last).views(trace)))
    topology, settings = trace.devices[0].topology(last), AllocatorSettings.of(trace)
    found = pinned(view, topology, settings, -1, 0)
    # pages of 20 MiB: the tensor sits in the second one, 18 MiB of which are free; the other four are cache
    assert (found.pages, found.num_pieces, found.held_bytes, found.live_bytes) == (True, 1, 18 * MIB, 2 * MIB)
    assert idle_by_group(view, topology, settings) == {int(topology.segments["group"][0]): 18 * MIB}


def test_a_tensor_across_two_pages_pins_both(heap):
    heap.segment(0, 40 * MIB, expandable=True)
    heap.alloc(0, 18 * MIB)
    heap.alloc(18, 4 * MIB, where="pin3")
    heap.alloc(22, 18 * MIB)
    heap.free(0, 18 * MIB)
    last = heap.free(22, 18 * MIB)
    trace = heap.trace(layout=Layout(expandable=True))
    view = next(iter(Context(at=last).views(trace)))
    found = pinned(view, trace.devices[0].topology(last), AllocatorSettings.of(trace), -1, 0)
    assert (found.num_pieces, found.held_bytes) == (2, 36 * MIB)
    assert [(pin.num_tensors, pin.tensor_bytes, pin.num_pieces) for pin in found.pins] == [(1, 4 * MIB, 2)]


def test_free_memory_of_another_stream_is_foreign(heap):
    for i in range(4):
        heap.segment(i * 100, 44 * MIB, stream=9)
        heap.alloc(i * 100, 20 * MIB, stream=9)
        heap.alloc(i * 100 + 20, 24 * MIB, stream=9)
    for i in range(4):
        heap.free(i * 100, 20 * MIB, stream=9)
    heap.segment(2000, 30 * MIB)
    heap.alloc(2000, 30 * MIB)
    found = findings(heap.trace())["MD204"]
    assert number(found, "free in part-used segments") == 80 * MIB
    assert [evidence.where for evidence in found.evidence if evidence.what == "of it in"] == ["default pool, large blocks, stream 0x9"]
    assert any("one stream" in fix.title for fix in found.fixes)


def test_large_blocks_are_not_foreign_to_a_small_request(heap):
    checkerboard(heap)
    heap.segment(3000, 2 * MIB)
    chosen = heap.alloc(3000, 512)
    assert "MD204" not in findings(heap.trace(), at=chosen)


def test_mostly_cache_is_said_not_to_be_fragmentation(heap):
    for i in range(4):
        heap.segment(i * 100, 50 * MIB)
        heap.alloc(i * 100, 50 * MIB)
    for i in range(4):
        heap.free(i * 100, 50 * MIB)
    found = findings(heap.trace())
    assert set(found) == {"MD205"}
    assert found["MD205"].severity == "info"
    assert number(found["MD205"], "(cache)") == 200 * MIB


def test_new_memory_is_not_called_cache_before_its_request_has_it(heap):
    heap.segment(0, 500 * MIB)
    heap.alloc(0, 500 * MIB)
    assert findings(heap.trace()) == {}


def test_rounding_to_powers_of_two_is_named_with_its_setting(heap):
    layout = Layout(divisions=(2,) * 16)
    for i in range(4):
        heap.segment(i * 200, 96 * MIB)
        heap.alloc(i * 200, 65 * MIB, where="odd3")
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "roundup_power2_divisions:2,max_split_size_mb:200"}
    found = findings(heap.trace(settings=settings, layout=layout))["MD203"]
    assert number(found, "allocated - requested") == 4 * 31 * MIB
    assert number(found, "roundup_power2_divisions") == 4 * 31 * MIB
    assert number(found, "lost by 4 tensors") == 4 * 31 * MIB
    assert found.fixes[0].change == "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:200"


def test_exact_multiples_of_two_mib_cost_a_page_each_on_an_npu(heap):
    for i in range(40):
        heap.segment(i * 100, 32 * MIB)
        heap.alloc(i * 100, 30 * MIB, where="weight3")
    trace = heap.trace(backend="npu")
    found = findings(trace)["MD207"]
    assert number(found, "free behind tensors") == 40 * PAGE
    assert (found.saving.low_bytes, found.saving.expected_bytes, found.saving.high_bytes) == (0, 80 * MIB, 80 * MIB)
    assert found.saving.basis == "estimated"
    assert "MD207" not in findings(heap.trace(backend="cuda"))


def test_tails_in_use_are_not_counted(heap):
    for i in range(40):
        heap.segment(i * 100, 32 * MIB)
        heap.alloc(i * 100, 30 * MIB, where="weight3")
        heap.alloc(i * 100 + 30 + 512 / MIB, 3 * MIB // 2)
    assert "MD207" not in findings(heap.trace(backend="npu"))


def test_without_addresses_nothing_is_said_of_fragmentation(heap):
    heap.alloc(0, 500 * MIB)
    heap.free(0, 500 * MIB)
    trace = heap.trace(segments=None)
    assert not trace.devices[0].has_addresses
    assert findings(trace) == {}
    assert fragmentation_at(trace.devices[0], 1).stranded_bytes is None


def test_a_snapshot_without_a_trace_still_shows_what_pins_what(shared):
    trace = load(shared / "data" / "snapshots" / "Felixburton7__voxelflex__dump_snapshot@95411eb0.pickle")
    assert trace.num_events == 0
    found = findings(trace)
    assert set(found) <= {"MD202"}
    assert found["MD202"].weight_bytes > 50 * MIB


def test_the_moment_is_looked_at_before_the_request_takes_its_memory(heap):
    checkerboard(heap)
    opened = heap.segment(2000, 64 * MIB)
    heap.alloc(2000, 64 * MIB)
    trace = heap.trace()
    context = Context()
    here = look(next(iter(context.views(trace))), context, AllocatorSettings.of(trace))
    assert (here.at, here.before) == (opened, opened - 1)
    assert not here.fit.fits
    assert here.fit.largest_free_bytes == 30 * MIB


def test_rounding_codes_are_codes_of_fragmentation():
    assert set(rounding.CODES) <= set(fragmentation.CODES)
