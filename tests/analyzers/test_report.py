from __future__ import annotations

import json
import pickle
import re
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memdiag
from memdiag.analyzers.report import build_report
from memdiag.errors import MemdiagError
from memdiag.results.finding import SEVERITIES
from memdiag.results.report import Report
from memdiag.sources import load
from memdiag.trace import schema
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.stacks import Frame, Stacks
from tests.training import MIB, Training


def trained(steps=3, **options):
    program = Training()
    program.initialise()
    for _ in range(steps):
        program.step(**options)
    return program


def check(report: Report, trace) -> None:
    """Checks the invariants of every report."""
    assert report.headline
    assert report.headline[0].isupper() or report.headline[0].isdigit()
    severities = [SEVERITIES.index(f.severity) for f in report.findings]
    assert severities == sorted(severities)
    # Findings whose settings save memory come before larger ones; the others are sorted by bytes.
    others = [(SEVERITIES.index(f.severity), -f.weight_bytes) for f in report.findings if not f.saving]
    assert others == sorted(others)
    for finding in report.findings:
        assert finding.evidence, finding.code
    for device, source in zip(report.devices, trace.devices, strict=True):
        assert device.end.reserved_bytes == (source.end["reserved"] if source.end["reserved"] >= 0 else None)
        moment = device.fragmentation.at_event
        active = source.usage_at(-1 if moment is None else moment)["active"]
        for held in (device.by_category, device.by_lifetime):
            if held is not None:
                assert all(held.values())
                assert sum(held.values()) == active or source.anomalies
        if device.top_sites is not None:
            sizes = [site.bytes for site in device.top_sites]
            assert sizes == sorted(sizes, reverse=True)
            assert sum(sizes) == active or (len(sizes) == 10 and sum(sizes) < active) or source.anomalies
            assert all(site.name and site.num_tensors for site in device.top_sites)
        if device.timeline and device.timeline.allocated:
            assert max(device.timeline.allocated) == source.usage.allocated.max()
            assert round(device.timeline.events_per_bucket * len(device.timeline.allocated)) == source.num_events
        if device.peak_allocated.at_event is not None:
            at = device.peak_allocated.at_event
            assert device.peak_allocated.allocated_bytes == max(
                int(source.usage.allocated.max()), source.start["allocated"]
            )
            assert at < 0 or not (source.usage.allocated[:at] >= device.peak_allocated.allocated_bytes).any()


def test_a_report_adds_up():
    trace = trained().trace()
    report = build_report(trace)
    check(report, trace)
    device = report.devices[0]
    assert device.moment.kind == "peak"
    assert device.peak.phase == "initialisation"  # this program uses all of its memory at once
    assert device.peak_allocated.phase == "backward"
    assert device.peak_allocated.step == 1
    assert device.counts == {"num_segments_allocated": 1, "num_segments_freed": 0, "num_retries": 0, "num_ooms": 0}
    assert report.source.num_events == trace.num_events
    assert [note.code for note in report.notes if note.code == "MD920"] == ["MD920"]


def test_the_moment_the_device_and_the_number_of_places_can_be_chosen():
    trace = trained().trace()
    at = next(i for i, phase in enumerate(trace.devices[0].events.phase) if phase == 4)
    report = build_report(trace, at=at, top=2, device=0)
    assert len(report.devices[0].top_sites) == 2
    assert report.devices[0].fragmentation.at_event == at
    assert (report.devices[0].moment.kind, report.devices[0].moment.at_event) == ("event", at)
    assert sum(report.devices[0].by_category.values()) == trace.devices[0].usage.active[at]
    before = build_report(trace, at=-1)
    assert before.devices[0].by_category is None
    for options in ({"device": 3}, {"at": 10**9}, {"at": "oom"}):
        with pytest.raises(MemdiagError):
            build_report(trace, **options)


_WORDS = ["forward", "backward", "step", "main", "__init__"]
_ENTRY = st.tuples(
    st.sampled_from(schema.ACTIONS),
    st.integers(0, 12),
    st.sampled_from([512, 3 * MIB, 20 * MIB, 100 * MIB]),
    st.sampled_from([(), *((Frame(f"/app/{word}_optim.py", 1, word),) for word in _WORDS)]),
)


@given(st.lists(_ENTRY, max_size=80), st.booleans())
def test_any_sequence_of_entries_can_be_reported_on(entries, has_addresses):
    stacks, ids = Stacks.from_lists([entry[3] for entry in entries])
    device = RawDevice(
        device=0,
        action=np.array([schema.ACTION_CODES[entry[0]] for entry in entries], np.int8),
        addr=np.array([entry[1] * 20 * MIB for entry in entries], np.int64),
        size=np.array([entry[2] for entry in entries], np.int64),
        stream=np.zeros(len(entries), np.int64),
        stack=ids,
        has_addresses=has_addresses,
    )
    trace = build_trace(RawTrace(path="any", format="torch-snapshot", backend="cuda", raws=[device], stacks=stacks))
    check(build_report(trace), trace)


def test_every_golden_adds_up(golden):
    trace = load(golden / "snapshot.pickle")
    report = build_report(trace)
    check(report, trace)
    truth = json.loads((golden / "truth.json").read_text())
    by_device = {device.device: device for device in report.devices}
    for device in truth["devices"]:
        mine = by_device[device["device"]]
        if truth["recorded_from_start"] and mine.peak.at_event is not None:
            assert mine.peak.reserved_bytes == device["peak"]["reserved"]
            assert mine.peak_allocated.allocated_bytes == device["peak"]["allocated"]
            assert mine.counts["num_ooms"] == device["num_ooms"]
            # these settings release cached memory earlier than necessary
            early = golden.name.endswith(("-gc-threshold", "-max-split"))
            assert early or mine.counts["num_retries"] == device["num_alloc_retries"]


def test_the_verdict_of_each_situation(goldens):
    def said(name, **options):
        return build_report(load(goldens / name / "snapshot.pickle"), **options).headline

    assert said("cuda-2.13.0-oom").startswith(
        "Ran out of memory: a request for 13.00 MiB failed although 24.00 MiB was free in this process: in blocks of"
    )
    assert "11.96 MiB was free in this process and " in said("cuda-2.13.0-oom-dump")
    assert said("cuda-2.13.0-leak").startswith("Memory grows by 1.14 MiB per step at ")
    assert "earlier moments were not recorded" in said("cuda-2.13.0-no-trace")
    assert said("cuda-2.13.0-empty") == "This snapshot contains no memory."
    empty = build_report(load(goldens / "cuda-2.13.0-empty" / "snapshot.pickle"))
    assert "memdiag record --" in empty.verdict.remedy
    assert (
        said("cuda-2.13.0-graphs")
        == "Peak 80.00 MiB allocated in 82.00 MiB reserved: 2.00 MiB (2.4%) lost to fragmentation."
    )
    assert said("cuda-2.13.0-train").endswith("The largest category at the peak is activations (43%).")
    assert said("cuda-2.13.0-max-split").endswith(
        "92.00 MiB (1.8%) lost to fragmentation, 2.43 GiB cached for reuse. "
        "The allocated peak, 2.72 GiB, is at another moment."
    )
    assert said("cuda-2.13.0-two-devices").startswith("Device 1: Peak ")


def test_the_verdict_at_another_moment_names_the_largest_category_of_it():
    said = build_report(trained().trace(), at="end").headline
    assert re.search(r" of what is live at the end is ", said)
    assert " at what is " not in said


def test_the_verdict_says_that_most_of_the_peak_has_no_known_category():
    program = trained(steps=1)
    program.step(leak=8 * sum(program.live.values()))
    for _ in range(3):
        program.step()
    assert re.search(r"The category of [89]\d% of the peak is unknown\.$", build_report(program.trace()).headline)


@pytest.mark.parametrize(("size", "is_peak"), [(300, False), (950, True)])
def test_the_verdict_says_if_most_memory_was_allocated_at_another_moment(heap, size, is_peak):
    heap.segment(0, 1000 * MIB)
    heap.alloc(0, 1000 * MIB, where="train1")
    heap.free(0, 1000 * MIB)
    heap.segment(2000, 100 * MIB)
    heap.alloc(2000, size * MIB // 10, where="evaluate1")
    heap.alloc(0, size * MIB * 9 // 10, where="evaluate1")
    said = build_report(heap.trace()).headline
    assert said.startswith("Peak ") is is_peak
    assert said.startswith("At the reserved peak, 300.00 MiB allocated in 1.07 GiB reserved") is not is_peak
    assert ("The allocated peak, 1000.00 MiB, is at another moment." in said) is not is_peak


def test_what_is_unknown_is_none():
    report = build_report(trained().trace(stacks=False))
    device = report.devices[0]
    assert device.by_category is None
    assert device.top_sites is None
    assert {field.name for field in fields(device)} >= {"timeline", "moment"}


def test_a_snapshot_without_a_trace_knows_no_peak(goldens):
    device = build_report(load(goldens / "cuda-2.13.0-no-trace" / "snapshot.pickle")).devices[0]
    assert device.peak.reserved_bytes is None
    assert device.peak_allocated.at_event is None
    assert device.timeline is None
    assert device.moment.kind == "snapshot"
    assert device.counts["num_segments_allocated"] is None


def test_the_public_name():
    assert memdiag.analyze is build_report


def test_every_real_snapshot_adds_up(shared):
    paths = sorted((shared / "data/snapshots").glob("*.p*kl*")) + sorted(
        (shared / "data/npu-samples").rglob("*.pickle")
    )
    assert len(paths) > 60
    for path in paths:
        trace = load(path)
        check(build_report(trace), trace)


def test_a_request_that_fails_before_anything_was_held_heads_the_report(tmp_path):
    entry = {
        "action": "oom",
        "addr": 0,
        "size": 16 << 30,
        "stream": 0,
        "frames": [],
        "device_free": 1 << 30,
        "time_us": 5,
    }
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[entry]], "allocator_settings": {}}))
    trace = load(path)
    report = build_report(trace)
    check(report, trace)
    assert report.headline.startswith("Ran out of memory: a request for 16.00 GiB failed with 0 B allocated")
