"""Names of traces in a baseline, and the overall result of a check."""

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
def test_baseline_names_are_file_stems_with_as_few_folders_as_needed(paths, keys):
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
def test_the_worst_result_decides_and_a_failure_outweighs_an_unknown(statuses, missing, status, code):
    report = CheckReport((DeviceCheck("t", "t.pkl", 0, checks=tuple(map(judged, statuses))),), missing)
    assert (report.status, report.exit_code) == (status, code)


def test_a_trace_that_could_not_be_read_cannot_be_judged():
    report = CheckReport((DeviceCheck("t", "t.pkl", None, "broken"),))
    assert (report.status, report.verdict) == (
        "unknown",
        "Metrics that could not be checked: 1; metrics within limits: 0.",
    )


def test_python_checks_traces_and_writes_the_baseline(tmp_path):
    baseline = tmp_path / "base.json"
    written = CheckRequest.read(baseline=baseline, update=True).check([EXAMPLE])
    assert baseline.exists()
    assert written.changes
    compared = CheckRequest.read(["peak_reserved=1MiB"], baseline, ["2%"]).check([EXAMPLE])
    assert {
        judgement.kind for trace in compared.traces for judgement in trace.checks if judgement.status == "failed"
    } == {"budget"}
    with pytest.raises(MemdiagError, match="there is nothing to check"):
        CheckRequest.read()
