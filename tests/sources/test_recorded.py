"""Recordings of memdiag give notes on their limits, and hostile columns in them are handled."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from memdiag.analyzers import settings
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from memdiag.errors import RefusedFile
from memdiag.recorder.columns import pack_bytes
from memdiag.sources import load
from memdiag.sources.recorded import FORMAT
from memdiag.trace import schema
from memdiag.trace.recorded import place
from memdiag.units import MIB

NAME = "cuda-2.13.0-recorded"


@pytest.fixture(scope="module")
def written(goldens):
    return (goldens / NAME / "snapshot.pickle").read_bytes()


@pytest.fixture
def opened(written, tmp_path):
    """Opens the golden with other values in the part of the recorder; a dict changes columns of a table."""

    def open_with(**changes):
        content = pickle.loads(written)
        for key, value in changes.items():
            table = content["memdiag"].get(key)
            columns = isinstance(value, dict) and key in ("marks", "modules", "tensors")
            content["memdiag"][key] = {**table, **value} if columns else value
        path = tmp_path / "changed.pickle"
        path.write_bytes(pickle.dumps(content, 4))
        return load(path)

    return open_with


def notes_of(trace):
    return {note.code: note.text for note in trace.notes}


def column(*values):
    return np.array(values, "<i8").tobytes()


def test_an_ordinary_recording_has_no_notes(opened):
    assert notes_of(opened()) == {}


def test_a_full_ring_says_what_is_left(opened):
    num = opened().num_events
    counts = {0: {"allocs": 5000, "frees": 4900}}
    text = notes_of(opened(max_events=num, counts=counts))["MD921"]
    assert f"the ring buffer of {num:,} entries was full" in text
    assert "of 5,000 allocations are left" in text
    assert "MD921" not in notes_of(opened(max_events=num + 1))


def test_what_is_freed_after_the_last_event_moves_no_mark(opened):
    whole = opened()
    device, (allocs, frees) = whole.devices[0], whole.recorded.counts[0]
    late = opened(counts={0: {"allocs": allocs, "frees": frees + 500}})
    where = [place(each.recorded, device, each.recorded.marks) for each in (whole, late)]
    assert (whole.recorded.marks["frees"] > 0).any()
    assert where[0].tolist() == where[1].tolist()


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ([3, 6], "steps 3 to 5"),
        ([3, None], "step 3 and later"),
        ([0, 2], "steps 0 to 1"),
        ([0, None], ""),
        (["a", None], ""),
        (7, ""),
    ],
)
def test_a_window_of_steps_is_named(opened, window, said):
    text = notes_of(opened(window=window)).get("MD917", "")
    assert said in text
    assert bool(text) == bool(said)


def test_gaps_are_told(opened):
    assert "restarted the recording of allocations" in notes_of(opened(taken_over="restarted"))["MD922"]
    assert "a gap of 2.5 s: the program ran its own profiler" in notes_of(opened(paused_seconds=2.5))["MD922"]
    assert "profiler lost 1.5 s of its recording" in notes_of(opened(lost_seconds=1.5))["MD922"]
    assert "3 frees without a recorded allocation" in notes_of(opened(unknown_frees=3))["MD902"]
    assert "the recording missed 2 frees" in notes_of(opened(unseen_frees=2))["MD902"]


def test_a_device_that_is_not_there_is_told(opened):
    trace = opened(phantom=True)
    assert trace.phantom
    assert "MD923" in notes_of(trace)


def test_what_is_assumed_of_it_and_what_was_read_back_are_told(opened):
    places = [{"where": "train.py:7", "count": 3}, {"where": "train.py:9", "count": 1}]
    device = {
        "device": "cuda:h200",
        "assumptions": ["no workspaces"],
        "values": "ones",
        "read_backs": {"count": 4, "places": places},
        "refused": ["cudaMallocManaged of libcudart"],
    }
    notes = notes_of(opened(phantom=True, phantom_device=device))
    assert notes["MD926"] == "assumptions about cuda:h200: no workspaces"
    assert (
        "4 values that the simulated device did not compute, "
        "first at train.py:7 (3 times), train.py:9 (once); they read as ones" in notes["MD927"]
    )
    assert "cudaMallocManaged of libcudart" in notes["MD928"]


def test_sizes_that_were_assumed_are_told(opened):
    sizes = {"fraction": 0.25, "count": 3, "places": [{"where": "nms.py:7", "count": 3}], "last": "nms.py:7"}
    notes = notes_of(opened(phantom=True, phantom_device={"assumed_sizes": sizes}))
    assert notes["MD932"].startswith(
        "3 sizes depend on values that the simulated device did not compute, first at nms.py:7"
    )
    assert "the fraction 0.25 of their elements, and --selected 0..1" in notes["MD932"]
    largest = notes_of(opened(phantom=True, phantom_device={"assumed_sizes": {**sizes, "fraction": 1.0}}))
    assert largest["MD932"].startswith("the peak is an upper bound: 3 sizes depend on values")


@pytest.mark.parametrize(
    ("fraction", "said"),
    [(1.0, "assumed the largest, so the peak is an upper bound"), (0.25, "assumed that the fraction 0.25 of elements")],
)
def test_the_first_screen_says_that_the_peak_depends_on_assumed_sizes(fraction, said, opened):
    sizes = {"fraction": fraction, "count": 3, "places": [{"where": "nms.py:7", "count": 3}], "last": "nms.py:7"}
    verdict = build_report(opened(phantom=True, phantom_device={"assumed_sizes": sizes})).verdict
    assert verdict.assumed.startswith("3 sizes depend on values, first at nms.py:7.")
    assert said in verdict.assumed
    assert build_report(opened(phantom=True, phantom_device={})).verdict.assumed == ""


@pytest.mark.parametrize(("error", "is_first"), [("ValueError", True), ("KeyboardInterrupt", False), ("", False)])
def test_an_error_of_a_program_without_problems_of_memory_is_corrected_first(error, is_first, opened):
    verdict = build_report(opened(error=error)).verdict
    assert (f"correct the error that ended the program ({error})" in verdict.remedy) == is_first
    assert ("ends at the error" in verdict.prediction) == is_first
    assert verdict.code == "" or not is_first


def test_an_error_after_values_that_were_made_up_gets_the_option_that_computes_them(opened):
    device = {"read_backs": {"count": 2}}
    assert "--values auto" in build_report(opened(error="ValueError", phantom_device=device)).verdict.remedy
    given = opened(error="TypeError", error_is_of_code=True, phantom_device=device)
    assert build_report(given).verdict.remedy.startswith("correct the error that ended the program (TypeError)")


def test_an_error_in_a_program_that_went_on_is_not_the_first_thing(opened):
    assert (
        "correct the error" not in build_report(opened(error="NameError", reason="ended by the program")).verdict.remedy
    )


@pytest.mark.parametrize(("count", "which"), [(1, "a value"), (7, "one of 7 values")])
def test_the_largest_sizes_are_no_certain_bound_if_the_program_read_made_up_values(count, which, opened):
    device = {"assumed_sizes": {"fraction": 1.0, "count": 3}, "read_backs": {"count": count}}
    trace = opened(phantom=True, phantom_device=device)
    skips = f"upper bound, unless the program skips work because of {which} that it read"
    assert skips in build_report(trace).verdict.assumed
    assert skips in notes_of(trace)["MD932"]


def test_the_assumed_load_of_experts_is_read(opened):
    assert opened(phantom=True, phantom_device={}).recorded.ended.expert_load == ""
    device = {"experts": {"load": "balanced", "count": 4}}
    assert opened(phantom=True, phantom_device=device).recorded.ended.expert_load == "balanced"


def test_what_was_computed_and_what_could_not_be_timed_is_told(opened):
    counts = {
        "limit_bytes": 65536,
        "computed": 1234,
        "partly": 2,
        "unknown": 30,
        "large": 0,
        "failed": 1,
        "failures": {"_cudnn_rnn": "no"},
    }
    notes = notes_of(opened(phantom=True, phantom_device={"computed": counts, "timing": {"candidates": 22}}))
    assert notes["MD929"] == (
        "the CPU computed 1,234 operators on tensors up to 64.00 KiB, and 2 more for some of their tensors; "
        "31 operators were not: 30 read unknown values, 1 failed on the CPU (_cudnn_rnn)"
    )
    assert "22 candidates could not be timed" in notes["MD930"]


def test_the_assumed_load_of_experts_is_told(opened):
    place = {"where": "moe.py:7", "experts": 8, "per_token": 2, "tokens": 1024, "most": 640, "fewest": 128, "count": 3}
    experts = {"load": "skew=0.5", "count": 4, "places": [place, {"where": 3}]}
    notes = notes_of(opened(phantom=True, phantom_device={"experts": experts}))
    assert notes["MD931"] == (
        "memdiag assumed how many tokens each expert gets (skew=0.5) in 4 router calls: moe.py:7: 3 calls, "
        "1,024 tokens to 2 of 8 experts each, from 128 to 640 tokens per expert"
    )
    notes = notes_of(opened(phantom=True, phantom_device={"experts": {"load": "balanced", "count": 0, "places": []}}))
    assert notes["MD931"] == "memdiag found no router of experts, so the requested load (balanced) had no effect"


@pytest.mark.parametrize(
    "value",
    [None, 3, "x", [], [None, 5], {"count": "many"}, {"count": True}, {"count": 0, "places": 7}, {"computed": 1}],
)
def test_a_device_described_by_a_stranger_makes_no_such_notes(opened, value):
    device = {
        "device": value,
        "assumptions": value,
        "read_backs": value,
        "refused": value,
        "computed": value,
        "timing": value,
        "experts": value,
        "assumed_sizes": value,
    }
    assert not {"MD926", "MD927", "MD928", "MD929", "MD930", "MD931", "MD932"} & set(
        notes_of(opened(phantom=True, phantom_device=device))
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, True, "2", None, [], 1 << 70])
def test_numbers_that_are_none_make_no_notes(opened, value):
    assert not {"MD902", "MD921"} & set(notes_of(opened(unknown_frees=value, unseen_frees=value, max_events=value)))
    if value is not True:
        assert "MD922" not in notes_of(opened(paused_seconds=value, lost_seconds=value, taken_over=value))


@pytest.mark.parametrize(
    "changes",
    [
        {"marks": {"value": b"1234567"}},
        {"marks": {"value": b""}},
        {"marks": {"value": [1, 2]}},
        {"marks": {"value": ""}},
        {"marks": {"value": "/home/someone"}},
        {"tensors": {"addr": None}},
        {"names": "abc"},
        {"names": []},
    ],
)
def test_damaged_columns_are_refused(opened, changes):
    with pytest.raises(RefusedFile):
        opened(**changes)


@pytest.mark.parametrize("extreme", [-(1 << 63), (1 << 63) - 1, 1 << 31, -1])
@pytest.mark.parametrize("name", ["time_ns", "kind", "value", "device", "allocs", "frees"])
def test_absurd_marks_do_no_harm(opened, written, name, extreme):
    num = len(pickle.loads(written)["memdiag"]["marks"][name]) // 8
    try:
        trace = opened(marks={name: column(*[extreme] * num)})
    except RefusedFile:
        return
    assert (trace.devices[0].events.step >= -1).all()
    assert (trace.devices[0].tensors.step_alloc >= -1).all()


def test_columns_are_read_as_text_and_as_the_bytes_of_older_recordings(opened, written):
    old = pickle.loads(written)["memdiag"]
    tables = ("marks", "modules", "tensors")
    assert {type(column) for table in tables for column in old[table].values()} == {bytes}
    one, two = (
        opened(),
        opened(**{table: {name: pack_bytes(data) for name, data in old[table].items()} for table in tables}),
    )
    assert one.recorded is not None
    assert two.recorded is not None
    for table in tables:
        for name, column in getattr(one.recorded, table).items():
            assert np.array_equal(column, getattr(two.recorded, table)[name]), (table, name)


def test_rows_that_name_every_moment_cost_little(opened):
    marks, rows = 40_000, 40_000
    one = np.ones(marks, np.int64)
    tensors = {
        "device": column(*[0] * rows),
        "addr": column(*range(512, 512 + 512 * rows, 512)),
        "category": column(*[1] * rows),
        "name": column(*[0] * rows),
        "first": column(*[0] * rows),
        "last": column(*[marks - 1] * rows),
    }
    allocs = np.linspace(0, 700, marks).astype(np.int64)
    made = {
        name: values.astype("<i8").tobytes()
        for name, values in {
            "time_ns": one,
            "kind": one * 0,
            "value": one * 2,
            "device": one * 0,
            "allocs": allocs,
            "frees": one * 0 - 1,
        }.items()
    }
    assert len(opened(marks=made, tensors=tensors).devices) == 1  # all sightings at once would take 100 GB


def test_what_is_seen_at_both_ends_was_there_all_the_time(opened):
    trace = opened()
    tensors = trace.devices[0].tensors
    weights = tensors.category == schema.CATEGORIES.index("parameter")
    assert {trace.strings[name] for name in tensors.name[weights]} >= {
        "embed.weight",
        "blocks.1.down.bias",
        "head.weight",
    }


@pytest.fixture
def on_npu(goldens, tmp_path):
    """Opens a snapshot of torch_npu as if the recorder had written it, with a line of settings in the environment."""

    def open_with(conf):
        content = pickle.loads((goldens / "npu-2.13.0-train" / "snapshot.pickle").read_bytes())
        content["memdiag"] = {"format": FORMAT, "settings": {"PYTORCH_NPU_ALLOC_CONF": conf}}
        path = tmp_path / "npu.pickle"
        path.write_bytes(pickle.dumps(content, 4))
        return load(path)

    return open_with


def test_settings_in_the_environment_decide_sizes_as_those_in_a_snapshot_do(on_npu):
    layout = on_npu("max_split_size_mb:64,roundup_power2_divisions:4,large_segment_size_mb:40").layout
    assert (layout.max_split, layout.divisions, layout.large_segment) == (64 * MIB, (4,) * 16, 40 * MIB)


def test_segments_show_that_expandable_segments_in_the_environment_were_not_in_effect(on_npu):
    assert not on_npu("expandable_segments:True").layout.expandable


@pytest.mark.parametrize("has_effect", [False, True])
def test_a_split_limit_of_an_npu_needs_a_segment_as_large(on_npu, has_effect):
    trace = on_npu("")
    largest = max(int(device.segments.total_size.max()) for device in trace.devices)
    limit = largest // MIB + (0 if has_effect else 1)
    codes = {finding.code for finding in settings.analyze(on_npu(f"max_split_size_mb:{limit}"), Context())}
    assert ("MD601" not in codes) == has_effect
