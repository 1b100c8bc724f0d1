"""Plot data keep the highest and lowest value of each column of pixels, and their parts add up to the whole."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memdiag
from memdiag.analyzers.support.moments import fragmentation_at
from memdiag.errors import MemdiagError
from memdiag.render import FORMS
from memdiag.runs.simulated_runs import simulate_runs, subject_of
from memdiag.trace.moments import choose_moment
from memdiag.views.plot_card import card_of
from memdiag.views.plot_fragmentation import fragmentation_of
from memdiag.views.plot_frame import Ask, bands_of, settled, thin
from memdiag.views.plot_lifetimes import lifetimes_of
from memdiag.views.plot_map import map_of
from memdiag.views.plot_policies import policies_of
from memdiag.views.plot_timeline import timeline_of
from memdiag.views.plots import PLOT_DATA
from tests.analyzers.test_residue import TOTAL, turns

GOLDENS = Path(__file__).parents[1] / "goldens"
EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt-train.pickle"


def golden(name):
    return memdiag.load(GOLDENS / name / "snapshot.pickle")


def as_recorded(trace, device):
    subject = subject_of(trace, device)
    return simulate_runs(subject, [subject.recorded])


@pytest.fixture(scope="module")
def example():
    return memdiag.load(EXAMPLE)


def test_every_kind_has_data_and_a_drawing():
    assert (*PLOT_DATA, "json") == FORMS["plot"]  # JSON lists the files that were drawn
    assert all(callable(data) for data in PLOT_DATA.values())


@given(st.lists(st.integers(0, 50), min_size=1, max_size=400), st.integers(1, 40))
def test_no_column_loses_its_highest_or_lowest_value(values, columns):
    curve = np.array(values)
    at = thin([curve], columns)
    assert (np.diff(at) > 0).all()
    edges = np.arange(columns + 1) * len(curve) // columns
    for low, high in pairwise(edges):
        kept = curve[at[(at >= low) & (at < high)]]
        if high > low:
            assert (kept.max(), kept.min()) == (curve[low:high].max(), curve[low:high].min())
            assert (kept[0], kept[-1]) == (curve[low], curve[high - 1])


def test_the_peak_is_drawn_however_few_columns_there_are(example):
    (device,) = example.devices
    for columns in (10, 300, 100_000):
        drawn = timeline_of(example, device, Ask(columns))
        assert max(drawn.reserved.bytes) == drawn.moment.highest == device.usage.reserved.max()
        assert max(drawn.allocated.bytes) == device.usage.allocated.max()
        assert len(drawn.reserved.at) <= max(4 * columns, 1)


def test_a_free_has_no_state_of_its_own(example):
    (device,) = example.devices
    assert (device.usage.active > device.usage.allocated).any()
    assert timeline_of(example, device, Ask(500)).active is None
    streams = golden("cuda-2.13.0-streams")
    assert timeline_of(streams, streams.devices[0], Ask(500)).active is not None
    assert (settled(device) - np.arange(device.num_events)).max() == 1


@pytest.mark.parametrize("columns", [50, 100_000])
def test_the_split_adds_up_to_what_is_reserved(example, columns):
    (device,) = example.devices
    drawn = fragmentation_of(example, device, Ask(columns))
    usage = device.usage.take(settled(device))
    assert (np.sum([drawn.requested, *drawn.parts.values()], axis=0) == usage.reserved[list(drawn.at)]).all()
    assert sum(drawn.at_moment.values()) == drawn.moment.bytes


@pytest.mark.parametrize("columns", [50, 100_000])
def test_lifetimes_add_up_to_what_is_active(example, columns):
    (device,) = example.devices
    drawn = lifetimes_of(example, device, Ask(columns))
    assert (np.sum([layer.bytes for layer in drawn.layers], axis=0) == device.usage.active[list(drawn.at)]).all()
    assert sum(layer.at_moment for layer in drawn.layers) == drawn.moment.bytes == device.usage.active[drawn.moment.at]
    assert [layer.key for layer in drawn.layers][:2] == ["persistent", "optimizer_state"]


@pytest.mark.parametrize(
    "name",
    ["cuda-2.13.0-train", "cuda-2.13.0-expandable", "cuda-2.13.0-pools", "cuda-2.13.0-no-trace", "npu-2.13.0-oom"],
)
def test_a_map_holds_every_byte_once(name):
    trace = golden(name)
    (device,) = trace.devices
    drawn = map_of(trace, device, Ask(800))
    at = choose_moment(device).event
    held = device.usage_at(at)["reserved"]
    assert sum(amount for _, _, amount in drawn.amounts) == held
    pieces = np.concatenate([rows for rows in drawn.pieces.values() if len(rows)])
    assert pieces[:, 2].sum() == held
    assert (pieces[:, 1] + pieces[:, 2]).max() <= drawn.row_bytes
    order = np.lexsort((pieces[:, 1], pieces[:, 0]))
    row, start, size = pieces[order].T
    assert ((start[1:] >= start[:-1] + size[:-1]) | (row[1:] > row[:-1])).all()
    split = fragmentation_at(device, at, trace.layout.large_segment)
    amounts = {kind: amount for kind, _, amount in drawn.amounts}
    assert [amounts.get(kind, 0) for kind in ("cache", "stranded", "foreign")] == [
        split.cache_bytes,
        split.stranded_bytes,
        split.foreign_bytes,
    ]
    inside = {(number, low, high) for number, one in enumerate(drawn.rows) for low, high in one.segments}
    assert sum(high - low for _, low, high in inside) == held


def test_a_map_of_very_many_blocks_keeps_their_columns(example, monkeypatch):
    (device,) = example.devices
    whole = map_of(example, device, Ask(800))
    monkeypatch.setattr("memdiag.views.plot_map._MOST_PIECES", 10)
    rough = map_of(example, device, Ask(800))
    assert rough.amounts == whole.amounts
    drawn = sum(size for rows in rough.pieces.values() for _, _, size in rows)
    assert abs(drawn - sum(amount for _, _, amount in whole.amounts)) < 0.05 * drawn


def test_phases_that_change_all_the_time_become_columns(example):
    (device,) = example.devices
    assert len(bands_of(device, 8)) <= 8
    bands = bands_of(device, 10_000)
    assert sum(band.end - band.start for band in bands) == int((device.events.phase > 0).sum())
    few = bands_of(device, 16)
    assert few[-1].end == device.num_events
    assert all(band.end == then.start for band, then in pairwise(few))


def test_policies_are_told_with_their_calibration(example):
    (device,) = example.devices
    drawn = policies_of(example, device, Ask(200, simulated=as_recorded(example, device)))
    (run,) = drawn.runs
    assert (run.label, run.peak_bytes, run.saved_bytes, run.failed_at) == ("caching", drawn.recorded_peak, 0, None)
    assert "calibrated" in drawn.frame.notes[0]
    assert "not calibrated" not in drawn.frame.notes[0]


def test_policies_know_of_what_was_held_before_the_trace_began():
    late = golden("cuda-2.13.0-late")
    (device,) = late.devices
    before = int(device.usage.reserved.max()) + (64 << 20)
    device = replace(device, start={**device.start, "reserved": before})
    drawn = policies_of(late, device, Ask(200, simulated=as_recorded(late, device)))
    assert (drawn.recorded_peak, drawn.runs[0].peak_bytes, drawn.runs[0].saved_bytes) == (before, before, 0)


def test_what_is_missing_is_said(example):
    state = golden("cuda-2.13.0-no-trace")
    for kind in ("timeline", "fragmentation", "lifetimes", "policies"):
        with pytest.raises(MemdiagError, match="has no events") as raised:
            PLOT_DATA[kind](state, state.devices[0], Ask(100))
        assert "map" in raised.value.hint
    cpu = golden("cpu-2.13.0-recorded")
    for kind in ("fragmentation", "map"):
        with pytest.raises(MemdiagError, match="needs the addresses of tensors"):
            PLOT_DATA[kind](cpu, cpu.devices[0], Ask(100))
    (device,) = example.devices
    bare = replace(device, tensors=device.tensors.replace(lifetime=np.zeros(len(device.tensors), np.int8)))
    with pytest.raises(MemdiagError, match="needs phases or steps"):
        lifetimes_of(example, bare, Ask(100))
    with pytest.raises(MemdiagError, match="held no memory"):
        map_of(example, device, Ask(100, at=-1))
    with pytest.raises(MemdiagError, match="no out-of-memory event"):
        map_of(example, device, Ask(100, at="oom"))


def test_the_parts_of_a_card_and_its_free_memory_sum_to_it():
    trace = turns([411, 1160, 2500])
    drawn = card_of(trace, trace.devices[0], Ask(200))
    assert drawn.total_bytes == TOTAL
    for number in range(len(drawn.at_ms)):
        assert sum(sizes[number] for sizes in drawn.parts.values()) + drawn.free[number] == TOTAL
    assert sum(drawn.at_fullest.values()) == TOTAL
    assert drawn.at_fullest["free"] == min(drawn.free)
    assert "unknown" not in drawn.parts  # the driver tells the processes apart
    assert drawn.frame.steps == ()


def test_a_card_without_samples_is_refused(example):
    with pytest.raises(MemdiagError, match="needs samples"):
        card_of(example, example.devices[0], Ask(200))
