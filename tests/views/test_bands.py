"""The stack of the largest tensors is as high as the active bytes, and the log contains the events."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memdiag
from memdiag.trace import schema
from memdiag.views import bands, log_rows
from memdiag.views.stacks import StackSymbols

ROOT = Path(__file__).parents[2]
GOLDENS = sorted((ROOT / "tests" / "goldens").glob("*-oom*/*.pickle"))


@pytest.fixture(scope="module")
def trace():
    return memdiag.load(ROOT / "examples" / "gpt-train.pickle")


@pytest.fixture(scope="module")
def device(trace):
    return trace.devices[0]


def height_of(device, found):
    """Returns the highest stack in each part: its live bands and the rest."""
    tensors = device.tensors
    born, gone = tensors.alloc_at[found.rows], tensors.free_completed_at[found.rows]
    size = tensors.block_bytes[found.rows]
    return np.array([size[(born <= at) & (at < gone)].sum() for at in found.at.tolist()]) + found.rest_bytes


@pytest.mark.parametrize("most", [1, 50, 100_000])
def test_the_stack_is_as_high_as_the_active_bytes(device, most):
    found = bands.of_run(device, most)
    assert len(found.rows) <= most
    high = height_of(device, found)
    ends = np.append(found.at[1:], found.end)
    for part, (at, end) in enumerate(zip(found.at.tolist(), ends.tolist(), strict=True)):
        assert high[part] == (
            device.usage.active[max(at, 0) : end].max() if end > max(at, 0) else device.start["active"]
        )
    assert high.max() == device.usage.active.max()


def test_bands_are_the_largest_tensors_in_the_order_of_allocation(device):
    found = bands.of_run(device, 100)
    size = device.tensors.block_bytes
    assert np.diff(device.tensors.alloc_at[found.rows]).min() >= 0
    assert size[found.rows].min() >= np.sort(np.delete(size, found.rows))[-1] or found.num_others == 0
    assert found.num_others == len(device.tensors) - 100


def test_a_run_of_steps_has_an_envelope_and_its_worst_step(device):
    worst, envelope = bands.of_worst_step(device), bands.step_envelope(device)
    assert (
        device.usage.active[worst.first : worst.end].max()
        == envelope["high"].max()
        == device.usage.active[envelope["at"]].max()
    )
    assert set(device.events.step[worst.first : worst.end].tolist()) == {worst.step}
    assert len(worst.rows) < len(device.tensors)
    assert (envelope["low"] <= envelope["high"]).all()
    assert height_of(device, worst).max() == envelope["high"].max()


def test_very_many_steps_share_rows_and_none_is_lost(device, monkeypatch):
    whole = bands.step_envelope(device)
    monkeypatch.setattr(bands, "_MOST_STEPS", 2)
    few = bands.step_envelope(device)
    assert len(few["step"]) == 2
    assert few["high"].max() == whole["high"].max()
    assert few["low"].min() == whole["low"].min()


def test_intervals_are_stabbed_by_few_events():
    begin, end = np.array([0, 2, 3, 10]), np.array([5, 4, 9, 11])
    at = bands.stabbing(begin, end)
    assert at.tolist() == [3, 10]
    assert bands.stabbing(begin[:0], end[:0]).tolist() == []


def test_every_band_is_live_at_an_instant_of_the_page(trace, monkeypatch):
    from memdiag.views import picture

    monkeypatch.setattr(picture, "MOST_INSTANTS", 60)
    page = picture.build_picture(trace, memdiag.analyze(trace, replay=False)).devices[0]
    table = {name: np.array(_values(page["tensors"][name])) for name in ("alloc_at", "free_completed_at")}
    at = np.array(_values(page["instants"]["event"]))
    for each in page["bands"]:
        rows = np.array(_values(each["tensor"]["row"]))
        born, gone = table["alloc_at"][rows], table["free_completed_at"][rows]
        assert (np.searchsorted(at, born) < np.searchsorted(at, gone)).all()


def _values(column):
    values = np.cumsum(column["v"]) if column["d"] else np.array(column["v"])
    return values * column["s"]


def test_the_log_holds_all_events_or_the_largest(trace, device, monkeypatch):
    rows = np.arange(0, len(device.tensors), 2)
    monkeypatch.setattr(log_rows, "MOST_EVENTS", device.num_events)
    log = log_rows.event_log(device, rows, StackSymbols(trace))
    assert log["event"].tolist() == list(range(device.num_events))
    known = log["tensor"] >= 0
    assert (rows[log["tensor"][known]] == device.events.tensor[log["event"][known]]).all()
    assert (device.events.tensor[log["event"][~known]] % 2 != 0).all()
    monkeypatch.setattr(log_rows, "MOST_EVENTS", 100)
    log = log_rows.event_log(device, rows, StackSymbols(trace))
    assert len(log["event"]) == 100
    assert log["size"].min() >= np.sort(device.events.size)[-100]


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.parent.name)
def test_failures_are_always_in_the_log(path, monkeypatch):
    trace = memdiag.load(path)
    monkeypatch.setattr(log_rows, "MOST_EVENTS", 20)
    for device in trace.devices:
        log = log_rows.event_log(device, np.arange(len(device.tensors)), StackSymbols(trace))
        failed = np.flatnonzero(device.events.action == schema.OOM)
        assert set(failed[:20].tolist()) <= set(log["event"].tolist())


def test_a_file_without_events_has_no_bands():
    trace = memdiag.load(GOLDENS[0])
    bare = replace(trace.devices[0], events=trace.devices[0].events.take(np.arange(0)))
    assert bare.num_events == 0
    found = bands.of_run(bare)
    assert len(found.rows) == 0
    assert len(found.at) == len(found.rest_bytes) == 1
