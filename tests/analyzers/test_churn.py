import json
from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import churn
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context
from memdiag.sources import load
from memdiag.trace.card import Card, MemorySample
from memdiag.trace.schema import CATEGORIES
from memdiag.trace.stacks import Frame, Stacks
from tests.analyzers.heaps import MIB, Heap
from tests.analyzers.page_examples import golden


def findings(trace):
    return {finding.code: finding for finding in churn.analyze(trace, Context())}


def number(finding, words):
    return next(evidence.value for evidence in finding.evidence if words in evidence.what)


def bursts(trace):
    return churn.find_bursts(next(iter(Context().views(trace))))


def cache(heap, at, count=3, size=100, **where):
    """Creates wholly free segments."""
    for i in range(count):
        heap.segment(at + i * 200, size * MIB, **where)
        heap.alloc(at + i * 200, size * MIB, **where)
    for i in range(count):
        heap.free(at + i * 200, size * MIB)


def retry(heap, at, new, size=300, where="greedy5", count=3, released=100):
    """Releases all cached segments and reserves a new one for the request."""
    for i in range(count):
        heap.release(at + i * 200, released * MIB, where=where)
    heap.segment(new, size * MIB, where=where)
    heap.alloc(new, size * MIB, where=where)
    heap.free(new, size * MIB)


def call(heap, at, count=3, size=100, where=("empty_cache", "loop9")):
    for i in range(count):
        heap.release(at + i * 200, size * MIB, where=where)


def test_a_release_before_a_new_segment_of_the_same_request_is_a_retry(heap):
    cache(heap, 0)
    retry(heap, 0, 1000)
    cache(heap, 2000)
    retry(heap, 2000, 3000)
    cache(heap, 4000)
    retry(heap, 4000, 5000)
    trace = heap.trace()
    found = findings(trace)
    assert list(bursts(trace).is_call) == [False, False, False]
    assert "MD402" not in found
    assert found["MD401"].severity == "warning"
    assert number(found["MD401"], "releases for which a request waited") == 3
    assert number(found["MD401"], "released") == 900 * MIB
    assert [
        evidence.where
        for evidence in found["MD401"].evidence
        if evidence.what == "retries caused by requests from this call site"
    ] == ["train.py:5 greedy5"]


def test_one_retry_is_for_information(heap):
    cache(heap, 0)
    retry(heap, 0, 1000)
    assert findings(heap.trace())["MD401"].severity == "info"


def test_a_retry_is_called_so_and_those_that_failed_are_told_apart(heap):
    cache(heap, 0)
    retry(heap, 0, 1000)
    heap.oom(900 * MIB)
    trace = heap.trace()
    found = findings(trace)["MD401"]
    assert found.title == "1 retry: the device was full, so the allocator released cached memory to serve a request"
    of_all = churn.count_retries(next(iter(Context().views(trace))), AllocatorSettings.of(trace))
    assert number(found, "releases for which a request") + number(found, "the request failed") == of_all == 2


def test_completions_do_not_break_a_burst(heap):
    heap.segment(900, 20 * MIB, stream=5)
    heap.alloc(900, 20 * MIB, stream=5)
    heap.free(900, 20 * MIB, stream=5, pending=True)
    cache(heap, 0)
    heap.release(0, 100 * MIB, where="greedy5")
    heap.complete(900, 20 * MIB, stream=5)
    heap.release(200, 100 * MIB, where="greedy5")
    heap.release(400, 100 * MIB, where="greedy5")
    heap.segment(1000, 300 * MIB, where="greedy5")
    heap.alloc(1000, 300 * MIB, where="greedy5")
    found = bursts(heap.trace())
    assert list(found.bytes) == [300 * MIB]
    assert not found.is_call[0]


def test_a_release_that_ends_in_an_error_is_no_retry(heap):
    cache(heap, 0)
    for i in range(3):
        heap.release(i * 200, 100 * MIB)
    heap.oom(900 * MIB)
    trace = heap.trace()
    assert not bursts(trace).is_call[0]
    assert findings(trace) == {}


def test_calls_of_empty_cache_in_a_loop(heap):
    for i in range(4):
        cache(heap, i * 1000)
        call(heap, i * 1000)
    found = findings(heap.trace())
    assert "MD401" not in found
    assert found["MD402"].severity == "warning"
    assert number(found["MD402"], "calls of empty_cache()") == 4
    assert number(found["MD402"], "released") == 1200 * MIB
    assert number(found["MD402"], "reserved again") == 900 * MIB
    assert [evidence.where for evidence in found["MD402"].evidence if evidence.what == "called from"] == [
        "train.py:1 empty_cache"
    ]


def test_a_capture_of_a_graph_empties_the_cache_by_itself(heap):
    for _ in range(4):
        heap.segment(0, 100 * MIB, where="f3")
        heap.alloc(0, 100 * MIB, where="f3")
        heap.free(0, 100 * MIB)
        heap.release(0, 100 * MIB, where=("empty_cache", "__enter__", "loop9"))
    trace = heap.trace()
    assert "MD402" in findings(trace)
    frames = [
        Frame("/env/torch/cuda/graphs.py", 449, "__enter__") if f.name == "__enter__" else f
        for f in trace.stacks.frames
    ]
    stacks = Stacks(frames, trace.stacks.offsets, trace.stacks.frame_ids)
    assert "MD402" not in findings(replace(trace, stacks=stacks))


def test_a_release_that_no_new_segment_follows_is_a_call_even_without_stacks(heap):
    heap.segment(5000, 2 * MIB)
    cache(heap, 0)
    call(heap, 0, where="")
    heap.alloc(5000, 512)
    assert bursts(heap.trace()).is_call[0]


def test_without_stacks_a_release_before_a_new_segment_at_the_highest_level_is_a_retry(heap):
    cache(heap, 0)
    call(heap, 0, where="")
    heap.segment(5000, 20 * MIB)
    heap.alloc(5000, 20 * MIB)
    assert not bursts(heap.trace()).is_call[0]


def test_a_release_without_need_is_a_call(heap):
    heap.segment(9000, 1000 * MIB)
    heap.alloc(9000, 1000 * MIB)
    heap.free(9000, 1000 * MIB)
    heap.release(9000, 1000 * MIB, where="a1")
    heap.alloc(20000, 0)  # another allocation in between
    cache(heap, 0)
    call(heap, 0, where="a2")
    heap.segment(2000, 50 * MIB, where="b3")
    heap.alloc(2000, 50 * MIB, where="b3")
    assert list(bursts(heap.trace()).is_call) == [True, True]


def with_room(trace, room):
    """Returns a trace with a sample of the device, which has ``room`` MiB for the allocator."""
    (device,) = trace.devices
    card = Card((MemorySample("start", 0, 80_000 * MIB, room * MIB, 0),), fraction=1.0)
    return replace(trace, devices=(replace(device, capacity_bytes=80_000 * MIB, card=card),))


@pytest.mark.parametrize(("room", "retries"), [(600, 3), (70_000, 0)])
def test_a_release_on_a_device_with_room_is_no_retry(heap, room, retries):
    for at in (0, 2000, 4000):
        cache(heap, at)
        retry(heap, at, at + 1000)
    trace = with_room(heap.trace(), room)
    assert (~bursts(trace).is_call).sum() == retries
    assert ("MD401" in findings(trace)) == bool(retries)


def test_trials_of_convolutions_are_told_from_calls_of_empty_cache(heap):
    """PyTorch empties the cache in C++ after it has tried the algorithms of a convolution with a workspace."""
    for at in range(0, 20_000, 5000):
        cache(heap, at, where="conv")
        call(heap, at, where="conv")
    trace = with_room(heap.trace(), 70_000)
    (device,) = trace.devices
    workspaces = np.full(len(device.tensors), CATEGORIES.index("workspace"), np.int8)
    tried = replace(trace, devices=(replace(device, tensors=device.tensors.replace(category=workspaces)),))
    assert findings(tried)["MD402"].title.startswith("cuDNN's benchmark emptied the cache 4 times")
    assert findings(tried)["MD402"].severity == "info"
    assert findings(trace)["MD402"].title.startswith("empty_cache() ran")


def test_a_call_whose_memory_is_not_needed_again_does_no_harm(heap):
    for i in range(4):
        if i == 0:
            cache(heap, 0, count=12)
        call(heap, i * 600)
        heap.alloc(50000 + i, 0)
    assert "MD402" not in findings(heap.trace())


def test_reserved_that_grows_alone(heap):
    heap.segment(0, 100 * MIB)
    heap.alloc(0, 100 * MIB, where="base1")
    at = 1000
    for i in range(12):
        heap.segment(at, (30 + 2 * i) * MIB, where="batch7")
        heap.alloc(at, (30 + 2 * i) * MIB, where="batch7")
        heap.free(at, (30 + 2 * i) * MIB)
        at += 200
    found = findings(heap.trace())["MD403"]
    assert number(found, "distinct sizes") == 12
    assert found.evidence[-1].where == "train.py:7 batch7"
    assert number(found, "growth of the reserved peak") > 200 * MIB


def test_reserved_that_grows_with_what_is_live_is_no_finding(heap):
    for i in range(20):
        heap.segment(i * 100, 50 * MIB)
        heap.alloc(i * 100, 50 * MIB)
    assert "MD403" not in findings(heap.trace())


def test_a_trace_without_releases_has_no_bursts(heap):
    heap.segment(0, 20 * MIB)
    heap.alloc(0, 20 * MIB)
    assert not len(bursts(heap.trace()).first)


def test_real_calls_of_empty_cache_are_found_with_their_caller(shared):
    trace = load(
        shared
        / "data"
        / "snapshots"
        / "Ascend__msinsight__scripts__MemSnapDump__test__test-data__snapshot_with_empty_cache.pkl"
    )
    found = findings(trace)
    assert "MD401" not in found
    assert [evidence.where for evidence in found["MD402"].evidence if evidence.what == "called from"] == [
        "hooker.py:92 post_step"
    ]


def test_real_pressure_is_told_from_calls(shared):
    trace = load(shared / "data" / "snapshots" / "Maphsge4__select_n__snapshot@ec5be110.pickle")
    found = findings(trace)
    assert found["MD401"].severity == "warning"
    assert "MD402" not in found


def test_retries_are_as_many_as_the_allocator_counted(golden):
    truth = json.loads((golden / "truth.json").read_text(encoding="utf-8"))
    devices = {device["device"]: device for device in truth["devices"]}
    if golden.name.startswith("cpu-"):
        pytest.skip("PyTorch's CPU allocator has no segments and counts nothing")
    if "max_split" in truth.get("conf", "") or "garbage" in truth.get("conf", ""):
        pytest.skip(
            "giving back one oversize block, or garbage, is no retry for the allocator; a trace does not tell them "
            "apart"
        )
    trace = load(golden / "snapshot.pickle")
    found = {finding.device: finding for finding in churn.analyze(trace, Context()) if finding.code == "MD401"}
    for device in trace.devices:
        if device.num_events < 2:
            continue
        counted = number(found[device.device], "releases for which a request waited") if device.device in found else 0
        failed = int(device.references.failed[device.references.retried].sum())
        least = devices[device.device]["num_alloc_retries"] - devices[device.device]["num_ooms"]
        assert least <= counted + failed <= devices[device.device]["num_alloc_retries"]


def test_garbage_collection_is_named_where_it_may_have_been_it(goldens):
    found = findings(load(goldens / "cuda-2.13.0-gc-threshold" / "snapshot.pickle"))["MD401"]
    assert found.severity == "info"
    assert "collection threshold" in found.title
    assert number(found, "releases for which a request waited") == 1


@pytest.mark.parametrize("name", ["cuda-2.13.0-oom", "cuda-2.13.0-oom-dump"])
def test_a_run_that_ran_out_of_memory_did_not_call_empty_cache(goldens, name):
    assert "MD402" not in findings(load(goldens / name / "snapshot.pickle"))


def _empty_cache():
    heap = Heap()
    for i in range(4):
        for k in range(3):
            at = i * 1000 + k * 200
            heap.segment(at, 100 * MIB, where="model.py:31 forward")
            heap.alloc(at, 100 * MIB, where="model.py:31 forward")
            heap.free(at, 100 * MIB)
        for k in range(3):
            heap.release(i * 1000 + k * 200, 100 * MIB, where=["memory.py:222 empty_cache", "train.py:61 step"])
    return build_report(heap.trace(), replay=False).findings


PAGE_EXAMPLES = {
    "MD401": lambda: golden("cuda-2.13.0-retries"),
    "MD402": _empty_cache,
    "MD403": lambda: golden("npu-2.13.0-train"),
}
