"""``memdiag.runs`` predicts a rerun and compares it with the measured one, without a command line."""

from __future__ import annotations

import json
from pathlib import Path

from memdiag.recorder.launch import ProgramEnd
from memdiag.recorder.run_folder import RunFolder
from memdiag.runs.finishing import FinishedRun
from memdiag.runs.recording import Done
from memdiag.runs.rerun import RepeatableRun
from memdiag.runs.trying import compare, predict

TRACE = Path(__file__).parents[2] / "examples" / "gpt-train.pickle"


def test_a_rerun_that_is_the_recorded_run_has_no_error(tmp_path, capsys):
    run = RepeatableRun(tmp_path, {"argv": ["python", "train.py"], "cwd": str(tmp_path), "phantom": None}, (TRACE,))
    plan = predict(run, "")
    (forecast,) = plan.forecast.ranks
    assert forecast.name == TRACE.name
    assert forecast.num_ooms == 0
    assert plan.forecast.command == "python train.py"
    folder = RunFolder(str(tmp_path), "")
    done = Done(
        folder, ProgramEnd(0, 1.0), FinishedRun(folder, ({"trace": str(TRACE)},), (), None, (), any_python=True)
    )
    report = compare(plan, done)
    (rank,) = report.ranks
    assert rank.outcome == "runs_to_its_end"
    assert rank.num_shared_allocations == rank.num_recorded_allocations == rank.num_measured_allocations > 0
    assert rank.recorded_peak_bytes == rank.measured_peak_bytes
    assert rank.error_bytes == forecast.peak_bytes - rank.measured_peak_bytes
    assert json.loads((tmp_path / "try.json").read_text())["ranks"][0]["outcome"] == "runs_to_its_end"
    assert capsys.readouterr() == ("", "")
