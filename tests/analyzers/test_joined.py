from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.failures import every_failure, numbers
from memdiag.analyzers.support.joined import PER_BATCH, join
from memdiag.analyzers.support.offered import offered
from memdiag.analyzers.support.root_causes import growth_of
from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.growth import despite_growth
from memdiag.oom.read import read_text
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.results.oom import Judgement, OomReport
from memdiag.results.report import WhatIf
from memdiag.text import catalogue, phrase
from memdiag.units import GIB, MIB
from tests.analyzers.joined_messages import joined, message, parts, says

NPU_MESSAGE = (
    "RuntimeError: NPU out of memory. Tried to allocate 50.00 MiB (NPU 0; 1.00 GiB total capacity; 40.00 MiB already "
    "allocated; 40.00 MiB current active; 4.00 MiB free; 160.00 MiB reserved in total by PyTorch)"
)
NPU_WORKSPACE_MESSAGE = (
    "RuntimeError: NPU out of memory. NPUWorkspaceAllocator tried to allocate 50.00 MiB"
    "(NPU 0; 1.00 GiB total capacity; 4.00 MiB free)."
)


def told(heap, **options):
    """Returns the only message of the report on a heap's trace."""
    [only] = join(None, heap.trace(**options)).messages
    return only


@pytest.fixture
def pieces(heap):
    """Creates four segments of 40 MiB with the first 30 MiB free: 120 MiB in fragments, 40 MiB in use."""
    for i in range(4):
        heap.segment(100 * i, 40 * MIB)
        heap.alloc(100 * i, 30 * MIB, where="f1")
        heap.alloc(100 * i + 30, 10 * MIB, where="keep2")
    for i in range(4):
        heap.free(100 * i, 30 * MIB)
    return heap


def test_a_free_block_that_is_large_enough_is_named(heap):
    heap.segment(0, 200 * MIB)
    heap.alloc(0, 40 * MIB, where="keep1")
    heap.oom(64 * MIB, device_free=0, where="big2")
    assert any(
        "A block of 160.00 MiB in the right pool and stream" in reason for reason in told(heap).judgement.reasons
    )


def test_free_bytes_in_pieces_are_fragmentation(pieces):
    pieces.oom(50 * MIB, device_free=4 * MIB, where="big3")
    only = told(pieces)
    assert (only.dialect, only.framework, only.backend, only.source) == ("trace", "pytorch", "cuda", "heap")
    assert dict(only.fields) == {
        "requested_bytes": 50 * MIB,
        "device_index": 0,
        "free_bytes": 4 * MIB,
        "allocated_bytes": 40 * MIB,
        "reserved_bytes": 160 * MIB,
        "active_bytes": 40 * MIB,
    }
    assert (
        "an allocation of 50.00 MiB (rounded) failed at train.py:3 big3 with 40.00 MiB allocated, 160.00 MiB reserved"
        in only.text
    )
    assert (only.judgement.verdict, only.judgement.confidence) == ("fragmentation", "high")
    assert says(
        only,
        "120.00 MiB was free",
        "the requested 50.00 MiB",
        "in 4 blocks",
        "The largest is 30.00 MiB, 20.00 MiB too small",
    )
    assert says(
        only, "160.00 MiB reserved = 40.00 MiB requested by live tensors + 120.00 MiB free, but in blocks too small"
    )
    assert says(only, "Most of this memory: 40.00 MiB from train.py:2 keep2")
    assert "MD201" in {finding.code for finding in only.findings}


def test_what_stands_between_the_pieces_is_named(heap):
    heap.segment(0, 100 * MIB)
    for at, size, name in ((0, 40, "f1"), (40, 10, "keep2"), (50, 50, "f1")):
        heap.alloc(at, size * MIB, where=name)
    heap.free(0, 40 * MIB)
    heap.free(50, 50 * MIB)
    heap.oom(60 * MIB, device_free=MIB)
    only = told(heap)
    assert only.judgement.verdict == "fragmentation"
    assert says(
        only,
        "In the range with the least live memory (100.00 MiB), 1 live tensor blocks the request: 10.00 MiB, allocated "
        "at "
        "train.py:2 keep2",
    )


def test_too_few_free_bytes_are_capacity(pieces):
    pieces.oom(200 * MIB, device_free=30 * MIB)
    only = told(pieces)
    # If the size of the device is unknown, other processes may hold the rest.
    assert (only.judgement.verdict, only.judgement.confidence, only.judgement.alternatives) == (
        "capacity",
        "medium",
        ("other_process",),
    )
    assert says(only, "120.00 MiB free inside the allocator and 30.00 MiB on the device", "50.00 MiB is missing")
    assert "MD206" in {finding.code for finding in only.findings}
    assert "MD201" not in {finding.code for finding in only.findings}


def test_what_the_device_has_left_counts_as_a_piece(pieces):
    pieces.oom(140 * MIB, device_free=30 * MIB)
    only = told(pieces)
    assert only.judgement.verdict == "fragmentation"
    assert says(
        only,
        (
            "120.00 MiB was free inside the allocator and 30.00 MiB on the device, together enough for the requested "
            "140.00 MiB"
        ),
    )


def test_dust_is_not_fragmentation(heap):
    heap.segment(0, 1000 * MIB)
    heap.alloc(0, 970 * MIB)
    heap.alloc(980, 10 * MIB)
    heap.oom(15 * MIB, device_free=0)
    only = told(heap)
    assert (only.judgement.verdict, only.judgement.alternatives) == ("capacity", ("fragmentation",))
    assert says(
        only, "20.00 MiB was free inside the allocator, enough", "Even with perfect packing, only 5.00 MiB would remain"
    )


def test_a_device_that_had_room_means_a_limit(pieces):
    pieces.oom(50 * MIB, device_free=500 * MIB)
    only = told(pieces)
    assert (only.judgement.verdict, only.judgement.confidence) == ("limit", "medium")
    assert "fragmentation" in only.judgement.alternatives
    [one] = joined(message(50 * MIB, 40 * MIB, 160 * MIB, 500 * MIB, limit=200 * MIB), pieces.trace())
    assert (one.judgement.verdict, one.judgement.confidence) == ("limit", "high")
    assert says(one, "160.00 MiB reserved + 50.00 MiB requested = 210.00 MiB, and this process may use 200.00 MiB")


def test_memory_of_others_is_theirs(pieces):
    pieces.oom(200 * MIB, device_free=4 * MIB)
    text = message(200 * MIB, 40 * MIB, 160 * MIB, 4 * MIB, others=((4711, 860 * MIB),))
    [one] = joined(text, pieces.trace())
    assert one.judgement.verdict == "other_process"
    assert says(
        one,
        "Other processes hold 860.00 MiB of 1.00 GiB",
        "76.00 MiB is missing",
    )
    assert sum(entry.bytes for entry in one.ledger if entry.owner != "total") == parts(one)["total"] == GIB


def test_free_memory_of_private_pools_is_out_of_reach(heap):
    heap.segment(0, 200 * MIB)
    heap.alloc(0, 200 * MIB)
    heap.free(0, 200 * MIB)
    heap.alloc(0, 20 * MIB)
    heap.segment(500, 100 * MIB)
    heap.alloc(500, 100 * MIB)
    heap.oom(50 * MIB, device_free=0)
    pools = [(1, 0) if index < 5 else (0, 0) for index in range(len(heap.entries))]
    only = told(heap, pools=pools)
    assert only.judgement.verdict == "workspace_or_comm"
    assert says(only, "180.00 MiB is free in private pools")
    # the advice is for these pools, not for libraries such as NCCL
    assert only.findings[-1].code == "MD705"
    assert "pool=first.pool()" in only.findings[-1].fixes[0].change


def test_more_than_the_device_is_capacity(pieces):
    pieces.oom(2 * GIB, device_free=800 * MIB)
    [one] = joined(message(2 * GIB, 40 * MIB, 160 * MIB, 800 * MIB), pieces.trace())
    assert (one.judgement.verdict, one.judgement.confidence) == ("capacity", "high")
    assert says(one, "A single request for 2.00 GiB is 2.0 times as large as the device (1.00 GiB)")


def test_a_message_finds_its_own_failure_among_several(pieces):
    pieces.oom(50 * MIB, device_free=4 * MIB)
    pieces.segment(1000, 60 * MIB)
    pieces.alloc(1000, 60 * MIB)
    pieces.oom(50 * MIB, device_free=2 * MIB)
    trace = pieces.trace()
    first = message(50 * MIB, 40 * MIB, 160 * MIB, 4 * MIB)
    second = message(50 * MIB, 100 * MIB, 220 * MIB, 2 * MIB)
    events = [failure.here.at for failure in every_failure(trace, 0)]
    for texts, order in (((first, second), events), ((second, first), events[::-1])):
        for one, at in zip(joined("\n".join(texts), trace), order, strict=True):
            assert says(one, f"a request of 50.00 MiB (rounded) at event {at}.", "Its numbers match the message")
            assert one.moment == ("--at oom" if at == max(events) else f"--at {at}")


def test_the_same_failure_again_and_again_is_one_message(pieces):
    for _ in range(5):
        pieces.oom(50 * MIB, device_free=4 * MIB, where="big3")
    pieces.oom(60 * MIB, device_free=4 * MIB, where="big3")
    messages = join(None, pieces.trace()).messages
    assert [(one.count, one.fields["requested_bytes"]) for one in messages] == [(5, 50 * MIB), (1, 60 * MIB)]
    assert says(messages[0], "The same request failed 5 times; this is the last")


def test_the_printed_size_is_that_of_the_segment(heap):
    heap.segment(0, 100 * MIB)
    heap.alloc(0, 90 * MIB)
    heap.oom(3 * MIB, device_free=MIB)
    [one] = joined(message(20 * MIB, 90 * MIB, 100 * MIB, MIB), heap.trace())
    assert says(one, "a request of 3.00 MiB (rounded)")
    [other] = joined(message(40 * MIB, 90 * MIB, 100 * MIB, MIB), heap.trace())
    assert says(other, "explained without the trace")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            message(50 * MIB, 40 * MIB, 160 * MIB, 4 * MIB, device=3),
            "the trace contains device 0, but the message is about device 3",
        ),
        (
            message(50 * MIB, 70 * MIB, 160 * MIB, 4 * MIB),
            "allocated: 70.00 MiB in the message, 40.00 MiB in the trace",
        ),
        (NPU_MESSAGE, "the trace is from cuda, but the message is from npu"),
        (NPU_WORKSPACE_MESSAGE, "has no numbers"),
    ],
)
def test_a_message_that_does_not_fit_keeps_its_verdict(pieces, text, why):
    pieces.oom(50 * MIB, device_free=4 * MIB)
    alone = read_text(text).messages
    [one] = joined(text, pieces.trace())
    assert says(one, "explained without the trace", why)
    assert replace(one, judgement=alone[0].judgement) == alone[0]
    assert (one.judgement.verdict, one.judgement.confidence) == (
        alone[0].judgement.verdict,
        alone[0].judgement.confidence,
    )


def test_a_message_without_numbers_keeps_its_verdict(pieces):
    pieces.oom(50 * MIB, device_free=4 * MIB)
    report = read_text(message(50 * MIB, 40 * MIB, 160 * MIB, 4 * MIB))
    bare = replace(report, messages=(replace(report.messages[0], fields={"device_index": 0}),))
    [one] = join(bare, pieces.trace()).messages
    assert says(one, "explained without the trace: the message has no numbers")


def test_files_without_addresses_tell_amounts(pieces):
    pieces.oom(130 * MIB, device_free=4 * MIB)
    known = {"reserved": np.full(len(pieces.entries), 160 * MIB), "active": np.full(len(pieces.entries), -1)}
    only = told(pieces, format="chrome-trace", has_addresses=False, segments=None, curves=known)
    assert only.judgement.verdict == "capacity"
    assert says(
        only, "the 120.00 MiB free inside the allocator could not hold the requested 130.00 MiB: 10.00 MiB is missing"
    )
    assert says(
        only, "160.00 MiB reserved = 40.00 MiB requested by live tensors + 120.00 MiB free inside the allocator"
    )


def test_without_a_failure_in_the_trace_a_like_moment_stands_in(pieces):
    trace = pieces.trace()
    [one] = joined(message(50 * MIB, 44 * MIB, 164 * MIB, 4 * MIB, total=200 * MIB), trace)
    assert says(
        one,
        "Approximation: the trace has no out-of-memory event, so the report describes event",
        "120.00 MiB was free",
        "in 4 blocks",
    )
    assert one.moment.startswith("--at ")
    assert one.moment != "--at oom"
    assert (one.judgement.verdict, one.judgement.confidence) == ("fragmentation", "medium")
    pieces.free(30, 10 * MIB)
    [served] = joined(message(38 * MIB, 30 * MIB, 160 * MIB, 4 * MIB), pieces.trace())
    assert says(
        served,
        "explained without the trace",
        "could have served the request by releasing 40.00 MiB of cache",
    )
    [far] = joined(message(50 * MIB, 400 * MIB, 640 * MIB, 4 * MIB), trace)
    assert says(far, "explained without the trace: the trace has no out-of-memory event, and its numbers are far")
    assert far.moment == ""


def test_what_is_free_in_private_pools_is_printed_as_allocated():
    [one] = read_text(message(50 * MIB, 300 * MIB, 500 * MIB, 4 * MIB, pool=120 * MIB)).messages
    found = {name: number.bytes for name, number in numbers(one.fields).items()}
    assert (found["allocated"], found["reserved"]) == (300 * MIB, 500 * MIB)


def test_sizes_agree_as_far_as_they_are_printed():
    size = 50 * GIB // 7
    [one] = read_text(message(size, size, 2 * size, size, total=64 * GIB)).messages
    for name, number in numbers(one.fields).items():
        exact = 2 * size if name == "reserved" else size
        assert abs(number.bytes - exact) <= number.slack < 12 * MIB


def test_nothing_fails_where_there_is_nothing(heap, pieces):
    assert join(None, heap.trace()).messages == ()
    report = join(OomReport((), ("a.log",), 3, 99), pieces.trace())
    assert (report.messages, report.sources, report.num_lines) == ((), ("a.log", "heap"), 3)


@pytest.mark.parametrize(
    ("code", "facts", "verdict"),
    [
        ("MD301", (Evidence(phrase("leaks.growth"), 50 * MIB, "bytes/step"),), "capacity"),
        ("MD301", (Evidence(phrase("leaks.growth"), MIB, "bytes/step"),), "fragmentation"),
        (
            "MD106",
            (Evidence(phrase("kept_passes.kept"), GIB), Evidence(phrase("kept_passes.graphs"), 8, "graphs")),
            "capacity",
        ),
        (
            "MD106",
            (Evidence(phrase("kept_passes.kept"), GIB), Evidence(phrase("kept_passes.graphs"), 80, "graphs")),
            "fragmentation",
        ),
        ("MD302", (Evidence(phrase("leaks.growth"), 50 * MIB, "bytes/step"),), "fragmentation"),
    ],
)
def test_pieces_that_growth_would_fill_in_a_few_steps_are_not_the_cause(code, facts, verdict):
    growing = Finding(code, "Memory grows", "warning", 0, facts)
    pieces = Judgement("fragmentation", "high", ("capacity",), ("in pieces",))
    growth = growth_of((growing,))
    numbers_of_it = Facts(request=100 * MIB, slack=150 * MIB, pool=50 * MIB)
    judged = pieces if growth is None else despite_growth(pieces, numbers_of_it, growth)
    assert judged.verdict == verdict
    assert judged.verdict not in judged.alternatives
    assert judged.reasons[0].startswith("Memory grows") == (code != "MD302")


def test_remedies_of_the_batch_are_known_by_keys_that_exist():
    for key in PER_BATCH:
        area, name = key.split(".", 1)
        assert name in catalogue(area)
    words = ("smaller batch", "smallest batch", "smaller batches", "Recompute activations", "backward pass")
    for area in ("oom_device", "oom_elsewhere", "oom_shared", "oom_torch", "oom_training"):
        titles = {
            f"{area}.{name}" for name, text in catalogue(area).items() if any(word in text["en"] for word in words)
        }
        assert {key for key in titles if not key.endswith((".when", ".caveat"))} <= PER_BATCH, area


@pytest.mark.parametrize(("num_ooms", "codes"), [(0, ["MD201"]), (1, ["MD101", "MD201"])])
def test_less_memory_comes_first_if_no_setting_gets_past_the_failure(num_ooms, codes, pieces, monkeypatch):
    pieces.oom(50 * MIB, device_free=4 * MIB, where="big3")

    def build(*args, **options):
        report = build_report(*args, **options)
        found = [finding for finding in report.findings if finding.code == "MD201"]
        less = Finding(
            "MD101", "warning", "most of it is activations", fixes=(Fix("recompute", "code", "checkpoint()"),)
        )
        change = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        replayed = (WhatIf(0, change, ("MD201",), False, GIB, 0, 0, num_ooms, 1, "exact", ""),)
        first = less.fixes[0] if num_ooms else found[0].fixes[0]
        verdict = replace(report.verdict, code=codes[0], remedy=first.title, command=first.change)
        return replace(report, findings=(*offered(found, replayed, {}), less), what_if=replayed, verdict=verdict)

    monkeypatch.setattr("memdiag.analyzers.support.joined.build_report", build)
    only = told(pieces)
    assert only.judgement.verdict == "fragmentation"
    assert [finding.code for finding in only.findings if finding.code.startswith("MD")][: len(codes)] == codes
    assert ("MD101" in {finding.code for finding in only.findings}) == (num_ooms == 1)
    changes = [fix.title for finding in only.findings for fix in finding.fixes]
    assert any("smaller batch" in title for title in changes) == (num_ooms == 1)


def test_the_first_remedy_is_that_of_the_card_of_the_trace(pieces, monkeypatch):
    pieces.oom(50 * MIB, device_free=4 * MIB, where="big3")
    change = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"

    def build(*args, **options):
        report = build_report(*args, **options)
        fixes = (Fix("together", "code", ""), Fix("setting", "env", change))
        found = [replace(each, fixes=fixes) for each in report.findings if each.code == "MD201"]
        card = replace(report.verdict, code="MD201", remedy="setting", command=change)
        return replace(report, findings=tuple(found), what_if=(), verdict=card)

    monkeypatch.setattr("memdiag.analyzers.support.joined.build_report", build)
    assert [fix.title for fix in told(pieces).findings[0].fixes] == ["setting", "together"]
