"""Unusable free memory becomes a finding with the right severity and fix."""

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import fragmentation
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.moments import fragmentation_at
from memdiag.analyzers.support.offered import offered
from memdiag.results.report import WhatIf
from memdiag.trace.layout import Layout
from memdiag.trace.schema import CATEGORIES, PHASES
from tests.analyzers.heaps import MIB, Heap
from tests.analyzers.page_examples import golden


def findings(trace, **options):
    return {finding.code: finding for finding in fragmentation.analyze(trace, Context(**options))}


def number(finding, words):
    return next(evidence.value for evidence in finding.evidence if words in evidence.what)


def test_an_error_that_one_piece_would_have_avoided_is_critical(heap):
    heap.checkerboard()
    heap.oom(64 * MIB, device_free=MIB, where="x7")
    found = findings(heap.trace())["MD201"]
    assert found.severity == "critical"
    assert number(found, "size of the request when memory ran out") == 64 * MIB
    assert number(found, "(stranded)") == 240 * MIB
    assert number(found, "size that this block lacks") == 34 * MIB
    assert number(found, "outside the allocator") == MIB
    assert "64.00 MiB" in found.title
    assert "240.00 MiB" in found.title
    assert found.fixes[0].change == "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert found.saving is None


def test_a_failure_that_no_setting_gets_past_gets_a_smaller_batch(heap):
    heap.checkerboard()
    heap.oom(64 * MIB, device_free=MIB, where="x7")
    report = build_report(heap.trace())
    [found] = [finding for finding in report.findings if finding.code == "MD201"]
    assert [fix.title.key for fix in found.fixes][-1] == "remedies.batch"
    for num_ooms, is_offered in ((1, True), (0, False)):
        replayed = WhatIf(0, found.fixes[0].change, ("MD201",), False, 320 * MIB, 0, 0, num_ooms, 1, "exact", "")
        [judged] = offered([found], [replayed], {})
        assert ("remedies.batch" in {fix.title.key for fix in judged.fixes}) == is_offered


@pytest.mark.parametrize(
    ("phase", "category", "where", "key"),
    [
        ("optimizer", "optimizer_state", "/lib/torch/optim/adam.py:9 step", "remedies.optimizer"),
        ("optimizer", "optimizer_state", "/lib/bitsandbytes/optim/optimizer.py:9 step", "remedies.shard"),
        ("optimizer", "gradient", "", "remedies.see-live"),
        ("backward", "optimizer_state", "", "remedies.see-live"),
    ],
)
def test_an_optimizer_without_room_for_its_state_needs_fewer_bits(phase, category, where, key, heap):
    heap.segment(0, 400 * MIB)
    heap.alloc(0, 400 * MIB, where=where)
    heap.oom(40 * MIB, device_free=MIB)
    trace = heap.trace(capacity_bytes=410 * MIB)
    (device,) = trace.devices
    tensors = device.tensors.replace(category=np.full(len(device.tensors), CATEGORIES.index(category), np.int8))
    events = device.events.replace(phase=np.full(len(device.events), PHASES.index(phase), np.int8))
    bases = {**trace.bases, "category": "marks", "phase": "marks"}
    trace = replace(trace, devices=(replace(device, tensors=tensors, events=events),), bases=bases)
    assert findings(trace)["MD206"].fixes[0].title.key == key


def test_library_workspaces_that_hold_segments_are_made_first(heap):
    """Each segment has a freed tensor and a workspace: a program cannot allocate a workspace as a view."""
    heap.checkerboard()
    heap.oom(64 * MIB, device_free=MIB, where="x7")
    trace = heap.trace()
    (device,) = trace.devices
    category = np.full(len(device.tensors), CATEGORIES.index("workspace"), np.int8)
    trace = replace(trace, devices=(replace(device, tensors=device.tensors.replace(category=category)),))
    changes = [fix.change for fix in findings(trace)["MD201"].fixes]
    assert "w = torch.nn.Linear(8, 8).cuda(); w(w.weight).sum().backward()" in changes
    assert not any(fix.title.key == "remedies.together" for fix in findings(trace)["MD201"].fixes)
    npu = replace(trace, backend="npu")
    assert not any("cuda()" in fix.change for fix in findings(npu)["MD201"].fixes)


def test_an_error_is_not_fragmentation_where_little_is_free(heap):
    heap.checkerboard(survivors=2)
    heap.oom(500 * MIB, device_free=MIB)
    found = findings(heap.trace())
    assert "MD201" not in found
    assert found["MD206"].severity == "critical"
    assert number(found["MD206"], "free in the allocator") == 60 * MIB


def test_an_error_with_next_to_nothing_left_is_not_fragmentation_either(heap):
    heap.segment(1000, 8192 * MIB)
    heap.alloc(1000, 8192 * MIB, where="f3")
    heap.checkerboard(survivors=2, at=20_000)
    heap.oom(50 * MIB, device_free=0)
    found = findings(heap.trace(capacity_bytes=8300 * MIB))
    assert "MD201" not in found
    assert "nearly all memory is in use, and the remaining 60.00 MiB" in found["MD206"].title
    assert len(found["MD206"].fixes) == 1  # no other pool has the memory


def test_what_the_driver_has_left_counts_towards_the_request(heap):
    heap.checkerboard(survivors=2)
    heap.oom(80 * MIB, device_free=30 * MIB)
    assert findings(heap.trace())["MD201"].severity == "critical"


def test_an_error_with_enough_left_on_the_device_is_a_limit(heap):
    heap.checkerboard(survivors=2)
    heap.oom(500 * MIB, device_free=4096 * MIB)
    found = findings(heap.trace(capacity_bytes=8192 * MIB))["MD206"]
    assert "limit" in found.title
    assert number(found, "used outside the allocator") == (8192 - 4096 - 80) * MIB
    assert any("limit" in fix.title for fix in found.fixes)


def test_the_error_with_most_to_spare_is_looked_at(heap):
    heap.segment(0, 40 * MIB)
    heap.alloc(0, 40 * MIB)
    heap.oom(500 * MIB)
    heap.checkerboard(at=100)
    last = heap.oom(64 * MIB)
    found = findings(heap.trace())["MD201"]
    assert f"event {last}" in found.evidence[0].where
    assert number(found, "out-of-memory errors in the trace") == 2


def test_a_chosen_event_is_looked_at_whatever_failed(heap):
    heap.checkerboard()
    heap.segment(2000, 64 * MIB)
    chosen = heap.alloc(2000, 64 * MIB)
    heap.oom(400 * MIB)
    assert findings(heap.trace(), at=chosen)["MD201"].severity == "warning"


def test_stranded_bytes_at_the_peak(heap):
    heap.checkerboard()
    heap.segment(2000, 64 * MIB)
    heap.alloc(2000, 64 * MIB, where="x7")
    found = findings(heap.trace())["MD201"]
    assert found.severity == "warning"
    assert number(found, "(stranded)") == 240 * MIB
    assert number(found, "largest of 8 free blocks") == 30 * MIB
    assert number(found, "reserved by 1 of 9 requests") == 64 * MIB
    assert found.weight_bytes == 240 * MIB


def test_the_telling_request_near_the_peak_is_chosen_not_a_tiny_last_one(heap):
    heap.checkerboard()
    heap.segment(2000, 64 * MIB)
    heap.alloc(2000, 64 * MIB, where="x7")
    heap.segment(3000, 2 * MIB)
    heap.alloc(3000, 512, where="tiny8")
    found = findings(heap.trace())["MD201"]
    assert number(found, "reference request") == 64 * MIB


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


def test_expandable_segments_are_not_recommended_on_windows(heap):
    heap.checkerboard()
    heap.oom(64 * MIB, where="C:\\work\\train.py:7 main")
    found = findings(heap.trace())["MD201"]
    assert found.fixes
    assert not any("expandable" in fix.change for fix in found.fixes)


def test_the_line_to_paste_keeps_what_is_set_and_drops_what_an_npu_cannot_combine(heap):
    heap.checkerboard()
    heap.oom(64 * MIB)
    text = "max_split_size_mb:128,base_addr_aligned_kb:0"
    found = findings(heap.trace(backend="npu", settings={"PYTORCH_NPU_ALLOC_CONF": text}))["MD201"]
    assert found.fixes[0].change == "export PYTORCH_NPU_ALLOC_CONF=base_addr_aligned_kb:0,expandable_segments:True"
    assert "max_split_size_mb" in found.fixes[0].caveat


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
    assert number(found, "free memory in partly used segments") == 80 * MIB
    assert [
        evidence.where for evidence in found.evidence if evidence.what == "free memory in this other pool or stream"
    ] == ["default pool, large blocks, stream 0x9"]
    assert any("one stream" in fix.title for fix in found.fixes)


def test_large_blocks_are_not_foreign_to_a_small_request(heap):
    heap.checkerboard()
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


def test_without_addresses_nothing_is_said_of_fragmentation(heap):
    heap.alloc(0, 500 * MIB)
    heap.free(0, 500 * MIB)
    trace = heap.trace(segments=None)
    assert not trace.devices[0].has_addresses
    assert findings(trace) == {}
    assert fragmentation_at(trace.devices[0], 1).stranded_bytes is None


def _other_stream():
    heap = Heap()
    for i in range(4):
        heap.segment(i * 100, 44 * MIB, stream=9)
        heap.alloc(i * 100, 20 * MIB, stream=9, where="prefetch.py:18 next_batch")
        heap.alloc(i * 100 + 20, 24 * MIB, stream=9, where="prefetch.py:18 next_batch")
    for i in range(4):
        heap.free(i * 100, 20 * MIB, stream=9)
    heap.segment(2000, 30 * MIB)
    heap.alloc(2000, 30 * MIB, where="model.py:31 forward")
    return build_report(heap.trace(), replay=False).findings


def _too_little():
    heap = Heap()
    for i in range(2):
        heap.segment(i * 100, 40 * MIB, where="model.py:31 forward")
        heap.alloc(i * 100, 30 * MIB, where="model.py:31 forward")
        heap.alloc(i * 100 + 30, 10 * MIB, where="model.py:31 forward")
    for i in range(2):
        heap.free(i * 100, 30 * MIB)
    heap.oom(500 * MIB, device_free=MIB, where="model.py:36 forward")
    return build_report(heap.trace(capacity_bytes=160 * MIB), replay=False).findings


PAGE_EXAMPLES = {
    "MD201": lambda: golden("cuda-2.13.0-oom"),
    "MD202": lambda: golden("cuda-2.13.0-pinned"),
    "MD204": _other_stream,
    "MD205": lambda: golden("cuda-2.13.0-retries"),
    "MD206": _too_little,
}
