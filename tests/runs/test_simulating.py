"""``memdiag.runs`` simulates and draws a recorded run from Python, as the commands do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import memdiag
from memdiag.analyzers.support.failures import failures
from memdiag.cli.main import main
from memdiag.errors import MemdiagError
from memdiag.render import renderer
from memdiag.render.plot.style import read_look
from memdiag.runs.pictures import choose_drawn, draw, read_kinds
from memdiag.runs.replayable import choose_device
from memdiag.runs.scenarios import SimulationRequest
from memdiag.runs.simulating import simulate

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt-train.pickle"


@pytest.fixture(scope="module")
def trace():
    return memdiag.load(EXAMPLE)


def test_a_simulation_from_python_is_that_of_the_command(trace, tmp_path, capsys):
    device = choose_device(trace)
    found = simulate(trace, device, SimulationRequest.read([], ["expandable_segments:True"], None, "64GiB", None))
    assert capsys.readouterr() == ("", "")
    assert main(["simulate", str(EXAMPLE), "--conf", "expandable_segments:True", "--capacity", "64GiB", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    said = json.loads(renderer("simulate", "json")(found.report))
    said["path"] = shown["path"] if "path" in shown else said.get("path")
    assert said == shown

    (run,) = found.runs
    run.write_rows(tmp_path / "rows.npz")
    with np.load(tmp_path / "rows.npz") as rows:
        assert {len(rows[name]) for name in rows.files} == {device.num_events}
    run.write_trace(tmp_path / "simulated.pkl")
    assert memdiag.load(tmp_path / "simulated.pkl").num_events
    assert [curve.label for curve in found.curves()] == ["as recorded", "caching: expandable_segments:True"]


def test_a_simulated_failure_has_the_largest_free_block_of_the_recorded_one(goldens):
    trace = memdiag.load(goldens / "cuda-2.13.0-oom" / "snapshot.pickle")
    (failure, *_) = failures(trace, 0)
    request = SimulationRequest.read([], [], None, None, None)
    prediction = simulate(trace, choose_device(trace), request).report.results[0]
    assert prediction.first_oom is not None
    assert failure.fit is not None
    assert prediction.first_oom.largest_free_bytes == failure.fit.largest_free_bytes


def test_a_device_that_is_not_there_is_refused(trace):
    with pytest.raises(MemdiagError, match="the trace does not contain device 7"):
        choose_device(trace, 7)
    with pytest.raises(MemdiagError, match="this trace does not contain device 7"):
        choose_drawn(trace, 7)


def test_a_picture_is_drawn_from_python(trace):
    (kind,) = read_kinds(["timeline"])
    request = SimulationRequest.read([], None, None, None, None)
    look = read_look("8x5", None, 72, "light", None)
    assert draw(trace, choose_drawn(trace), kind, "svg", look, "peak", request).lstrip().startswith(b"<?xml")
