"""What traces are called in a baseline, and how a check is judged as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from memdiag.errors import MemdiagError
from memdiag.gates.check import keys_of
from memdiag.gates.request import CheckRequest
from memdiag.results.check import CheckReport, DeviceCheck, MetricJudgement

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt-train.pickle"


def judged(status):
    return MetricJudgement("peak", "bytes", "budget", status, 1, 2, None, "at most 2 B", "peak is 1 B")


@pytest.mark.parametrize(
    ("paths", "keys"),
    [
        (["run/rank0.pkl", "run/rank1.pkl"], ["rank0", "rank1"]),
        (["a/rank0.pkl", "b/rank0.pkl", "c/other.pkl"], ["a/rank0", "b/rank0", "other"]),
        (["x/a/t.pkl", "y/a/t.pkl", "b/t.pkl"], ["x/a/t", "y/a/t", "b/t"]),
        (["t.pkl", "t.pickle"], ["t.pkl", "t.pickle"]),
    ],
)
def test_a_trace_is_called_by_its_file_and_by_as_many_folders_as_are_needed(paths, keys):
    assert keys_of([Path("/data") / path for path in paths]) == keys


@pytest.mark.parametrize(
    ("statuses", "missing", "status", "code"),
    [
        (["ok", "ok"], (), "ok", 0),
        (["ok", "unknown"], (), "unknown", 2),
        (["unknown", "failed"], ("rank3",), "failed", 1),
        (["ok"], ("rank3",), "unknown", 2),
    ],
)
def test_the_worst_decides_and_a_failure_outweighs_what_is_not_known(statuses, missing, status, code):
    report = CheckReport((DeviceCheck("t", "t.pkl", 0, checks=tuple(map(judged, statuses))),), missing)
    assert (report.status, report.exit_code) == (status, code)


def test_a_trace_that_could_not_be_read_cannot_be_judged():
    report = CheckReport((DeviceCheck("t", "t.pkl", None, "broken"),))
    assert (report.status, report.verdict) == ("unknown", "1 could not be judged; 0 within limits.")


def test_traces_are_checked_from_python_and_the_baseline_is_written(tmp_path):
    baseline = tmp_path / "base.json"
    written = CheckRequest.read(baseline=baseline, update=True).check([EXAMPLE])
    assert baseline.exists()
    assert written.changes
    compared = CheckRequest.read(["peak_reserved=1MiB"], baseline, ["2%"]).check([EXAMPLE])
    assert {
        judgement.kind for trace in compared.traces for judgement in trace.checks if judgement.status == "failed"
    } == {"budget"}
    with pytest.raises(MemdiagError, match="nothing to check against"):
        CheckRequest.read()
