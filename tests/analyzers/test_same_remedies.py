"""A message and a trace of the same failure offer the same first remedy, and no surface offers a refuted remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memdiag.analyzers import fragmentation
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.failure_cause import facts_of
from memdiag.analyzers.support.failures import every_failure
from memdiag.analyzers.support.joined import join
from memdiag.analyzers.support.offered import offered
from memdiag.diagnosis.refuted import without_refuted
from memdiag.diagnosis.remedies import ALLOCATOR_SETTINGS
from memdiag.diagnosis.remedies.model import Situation
from memdiag.oom.read import read_text
from memdiag.results.finding import Finding, Fix
from memdiag.results.report import WhatIf
from memdiag.settings.conf import parse_conf
from memdiag.sources import load
from memdiag.trace.layout import Layout
from memdiag.units import GIB, KIB, MIB

# MD204 is about memory of other pools; these two findings are about the failure.
OF_FAILURES = {"MD201", "MD206"}


def printed(size):
    if size <= MIB:
        return f"{size / KIB:.2f} KiB" if size > KIB else f"{size} bytes"
    return f"{size / MIB:.2f} MiB" if size <= GIB else f"{size / GIB:.2f} GiB"


def message_of(facts, total):
    """Returns the message of PyTorch or torch_npu for a failure on a device of ``total`` bytes."""
    if facts.backend == "npu":
        return (
            f"RuntimeError: NPU out of memory. Tried to allocate {printed(facts.requested)} (NPU 0; {printed(total)} "
            f"total capacity; {printed(facts.allocated)} already allocated; {printed(facts.allocated)} current active; "
            f"{printed(facts.free)} free; {printed(facts.reserved)} reserved in total by PyTorch)"
        )
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {printed(facts.requested)}. GPU 0 has a total "
        f"capacity of {printed(total)} of which {printed(facts.free)} is free. Of the allocated memory "
        f"{printed(facts.allocated)} is allocated by PyTorch, and {printed(facts.reserved - facts.allocated)} is "
        "reserved by PyTorch but unallocated."
    )


def first_of_message(facts, outside_mb=0):
    """Returns the verdict and the first remedy of a message; ``outside_mb`` is memory outside the allocator."""
    [message] = read_text(message_of(facts, facts.reserved + facts.free + outside_mb * MIB)).messages
    return message.judgement.verdict, message.findings[0].fixes[0]


def first_of_trace(trace, at=None):
    """Returns the first remedy of the finding about a failure."""
    findings = fragmentation.analyze(trace, Context(at=at) if at is not None else Context())
    [found] = [each for each in findings if each.code in OF_FAILURES and each.severity == "critical"]
    return found.fixes[0]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from(["cuda", "npu"]),
    st.lists(st.tuples(st.integers(2, 30), st.integers(2, 30)), min_size=1, max_size=8),
    st.integers(22, 500),
    st.integers(0, 19),
    st.sampled_from([0, 200, 2000, 20_000]),
)
def test_a_message_and_a_trace_begin_with_the_same_remedy(heap, backend, pairs, request_mb, free_mb, outside_mb):
    """A message and a trace have the same first remedy, for a request that no cached segment can serve.

    Each segment has a live and a freed tensor, with sizes in pages of 2 MiB.
    """
    heap = type(heap)()
    for number, (live, freed) in enumerate(pairs):
        at, pad = number * 256, 1 if backend == "npu" else 0
        heap.segment(at, 2 * (live + freed) * MIB)
        heap.alloc(at, 2 * freed * MIB - pad * 512)
        heap.alloc(at + 2 * freed, 2 * live * MIB - pad * 512)
        heap.free(at, 2 * freed * MIB - pad * 512)
    heap.oom(request_mb * MIB, device_free=free_mb * MIB)
    total = sum(2 * (live + freed) for live, freed in pairs) + free_mb + outside_mb
    layout = Layout(pad=32 if backend == "npu" else 0)
    trace = heap.trace(backend=backend, layout=layout, capacity_bytes=total * MIB)
    [failure] = every_failure(trace, 0)
    if failure.fit is not None and failure.fit.fits:
        return  # the allocator would have served the request
    verdict, first = first_of_message(replace(facts_of(failure), backend=backend), outside_mb)
    if verdict in {"fragmentation", "capacity", "other_process"}:
        assert first_of_trace(trace).title.key == first.title.key


@pytest.mark.parametrize(
    "name", ["cuda-2.13.0-oom", "cuda-2.13.0-oom-dump", "cuda-2.14.1-oom", "cuda-2.15.0-oom", "npu-2.13.0-oom"]
)
def test_recorded_failures_begin_with_the_remedy_of_their_message(goldens, name):
    trace = load(goldens / name / "snapshot.pickle")
    failure = every_failure(trace, 0)[-1]
    _verdict, first = first_of_message(facts_of(failure))
    assert first_of_trace(trace).title.key == first.title.key
    [*_, joined] = join(None, trace).messages
    main = joined.findings[0]
    tried = [each.what for each in main.evidence if getattr(each.what, "key", "") == "offered.tried"]
    is_refuted = any(conf_of(first) in each for each in tried)
    assert is_refuted or main.fixes[0].title.key == first.title.key


def test_a_trace_says_why_it_does_not_repeat_a_remedy_of_the_message(heap):
    heap.segment(0, 200 * MIB, expandable=True)
    for at in range(0, 200, 20):
        heap.alloc(at, 10 * MIB)
        heap.alloc(at + 10, 10 * MIB)
    for at in range(0, 200, 20):
        heap.free(at, 10 * MIB)
    heap.oom(60 * MIB, device_free=2 * MIB)
    trace = heap.trace(settings={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, layout=Layout(expandable=True))
    [failure] = every_failure(trace, 0)
    verdict, first = first_of_message(facts_of(failure))
    assert (verdict, first.title.key) == ("fragmentation", "remedies.expandable")
    [message] = join(read_text(message_of(facts_of(failure), 202 * MIB)), trace).messages
    assert "remedies.expandable" not in {fix.title.key for finding in message.findings for fix in finding.fixes}
    assert any("expandable_segments:True" in reason for reason in message.judgement.reasons)


def conf_of(fix):
    return fix.change.partition("=")[2]


def without_numbers(conf):
    return {key: "".join(each for each in value if not each.isdigit()) for key, value in parse_conf(conf).items()}


@pytest.mark.parametrize("name", ["cuda-2.13.0-oom", "cuda-2.13.0-pinned", "cuda-2.13.0-streams", "npu-2.13.0-oom"])
def test_no_surface_offers_a_setting_that_a_replay_of_a_golden_refutes(goldens, name):
    trace = load(goldens / name / "snapshot.pickle")
    report = build_report(trace)
    single = [result for result in report.what_if if not result.is_combination]
    assert single
    refuted = {result.change for result in single if result.rejection_reason}
    helping = [without_numbers(result.conf) for result in single if result.is_offered]
    surfaces = [fix for finding in report.findings if not finding.code.startswith("MD6") for fix in finding.fixes]
    assert not refuted & {fix.change for fix in surfaces}
    assert report.verdict.command not in refuted
    for message in join(None, trace).messages:
        for fix in (fix for finding in message.findings for fix in finding.fixes if fix.kind == "env"):
            same = [result for result in single if without_numbers(result.conf) == without_numbers(conf_of(fix))]
            assert not same or without_numbers(conf_of(fix)) in helping


SITUATION = Situation(variable="PYTORCH_CUDA_ALLOC_CONF")
LINES = [fix for each in ALLOCATOR_SETTINGS.values() for fix in each.variants(SITUATION)]


@st.composite
def replays(draw):
    """Draws replay results of some settings, each with the reason why it is refuted, or "" if it helps."""
    chosen = draw(st.lists(st.sampled_from(LINES), min_size=1, unique_by=lambda fix: fix.change))
    return [
        WhatIf(
            device=0,
            change=fix.change,
            codes=("MD201",),
            is_combination=False,
            peak_reserved_bytes=GIB,
            saved_bytes=draw(st.integers(0, GIB)),
            calibration_error_bytes=0,
            num_ooms=0,
            num_recorded_ooms=0,
            calibration="",
            repro=f"memdiag simulate x --conf {conf_of(fix)}",
            rejection_reason=draw(st.sampled_from(["", "it saves nothing"])),
        )
        for fix in chosen
    ]


@given(replays(), st.lists(st.sampled_from(LINES), unique_by=lambda fix: fix.change))
def test_what_replays_refute_is_offered_neither_by_findings_nor_by_advice(results, fixes):
    finding = Finding("MD201", "", "warning", 0, (), (*fixes, Fix("", "code")))
    refuted = {result.change for result in results if result.rejection_reason}
    for kept in offered([finding], results, {}):
        assert not refuted & {fix.change for fix in kept.fixes}
    helping = [without_numbers(result.conf) for result in results if result.is_offered]
    tried = [without_numbers(result.conf) for result in results]
    [advice] = without_refuted([replace(finding, code="MD701")], results)
    for fix in advice.fixes:
        assert without_numbers(conf_of(fix)) not in tried or without_numbers(conf_of(fix)) in helping or not fix.change
