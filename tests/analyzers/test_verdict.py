"""The verdict card offers a remedy that a replay confirms, and has the same numbers as the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.headline import headline
from memdiag.analyzers.support.verdict import _first, verdict
from memdiag.diagnosis.refuted import is_relevant, is_solution
from memdiag.results.finding import Finding, Fix, Saving
from memdiag.sources import load
from memdiag.trace.recording import ProcessMarks, RecordingEnd
from memdiag.units import MIB

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt-train.pickle"


@pytest.fixture(scope="module")
def trace():
    return load(EXAMPLE)


def test_the_first_remedy_is_the_setting_that_saves_most(trace):
    card = build_report(trace).verdict
    assert card.severity == "warning"
    assert card.command == "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert (card.fits, card.peak_reserved_bytes - card.predicted_peak_reserved_bytes) == (True, 530 << 20)
    assert "reserved peak 2.48 GiB instead of 2.99 GiB" in card.prediction
    assert "exact (4,463 of 4,463)" in card.calibration


def test_a_failure_gets_the_setting_that_gets_past_it(goldens):
    card = build_report(load(goldens / "cuda-2.13.0-oom" / "snapshot.pickle")).verdict
    assert card.severity == "critical"
    assert card.summary.startswith("Ran out of memory")
    assert card.command.endswith("expandable_segments:True")
    assert "the failed allocation succeeds" in card.prediction


@pytest.mark.parametrize(("times", "is_before"), [(5, True), (3, False)])
def test_a_fix_that_saves_far_more_comes_before_settings(trace, times, is_before):
    report = build_report(trace)
    saved = times * max(result.saved_bytes for result in report.what_if)
    fix = Fix("use a fused kernel", "code", "attention(q, k, v)")
    finding = Finding("MD131", "attention", "warning", 0, (), (fix,), saving=Saving(0, saved, saved, "estimated"))
    (_, chosen), result = _first((*report.findings, finding), report.what_if)
    assert (chosen == fix, result is None) == (is_before, is_before)


@pytest.mark.parametrize(("percent", "is_offered"), [(1, False), (3, True)])
def test_a_setting_that_saves_hardly_anything_is_not_the_first_advice(trace, percent, is_offered):
    results = [replace(each, saved_bytes=each.baseline_bytes // 100) for each in build_report(trace).what_if]
    saved = results[0].baseline_bytes * percent // 100
    fix = Fix("merge free blocks", "env", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    finding = Finding("MD201", "fragmented", "warning", 0, (), (fix,), saving=Saving(0, saved, saved, "simulated"))
    chosen, result = _first([finding], results)
    assert (chosen is not None, result) == (is_offered, None)


def test_a_setting_that_lowers_the_peak_of_a_run_without_problems_is_optional(trace):
    report = build_report(trace)
    findings = [replace(each, severity="info") for each in report.findings]
    card = verdict(trace, report.devices, findings, report.what_if, report.headline, replay=True)
    assert card.severity == "ok"
    assert card.remedy == f"nothing is necessary. For a lower peak: {report.verdict.remedy}"
    assert (card.command, card.prediction) == (report.verdict.command, report.verdict.prediction)


@pytest.mark.parametrize(("name", "is_first"), [("cuda-2.13.0-pinned", True), ("cuda-2.13.0-leak", False)])
def test_an_error_comes_before_settings_but_not_before_growth(name, is_first, goldens):
    trace = load(goldens / name / "snapshot.pickle")
    report = build_report(trace)
    failed = replace(trace, recorded=ProcessMarks((), {}, {}, {}, {}, ended=RecordingEnd("exit", "KeyError")))
    card = verdict(failed, report.devices, report.findings, report.what_if, report.headline, replay=True)
    assert card.severity == "warning"
    assert card.remedy.startswith("correct the error that ended the program (KeyError)") == is_first


def test_growth_comes_before_settings(goldens):
    card = build_report(load(goldens / "cuda-2.13.0-leak" / "snapshot.pickle")).verdict
    assert card.code == "MD301"
    assert card.predicted_peak_reserved_bytes is None


def test_without_a_replay_it_says_why_there_is_no_prediction(trace, goldens):
    assert "memdiag replayed nothing" in build_report(trace, replay=False).verdict.calibration
    assert "no model of this allocator (cpu)" in build_report(replace(trace, backend="cpu")).verdict.calibration
    assert "no history" in build_report(load(goldens / "cuda-2.13.0-no-trace" / "snapshot.pickle")).verdict.calibration


def test_an_empty_snapshot_lost_nothing(heap):
    card = build_report(heap.trace()).verdict
    assert card.loss == "nothing: no memory was in use"
    assert card.remedy.startswith("record the program")


def test_a_recording_without_requests_has_no_replay(heap):
    heap.segment(0, 20 * MIB)
    heap.free(0, 8 * MIB)  # allocated before the recording
    report = build_report(heap.trace())
    assert report.source.num_tensors == 1
    assert not report.what_if
    assert "no history" in report.verdict.calibration


def test_every_recording_has_a_card_that_agrees_with_its_report(goldens):
    for path in sorted(goldens.glob("*/*.p*kl*")):
        report = build_report(load(path))
        card = report.verdict
        assert card.summary == report.headline, path
        device = next((each for each in report.devices if each.device == card.device), None)
        if device is not None and card.lost_bytes is not None:
            assert card.lost_bytes == device.fragmentation.lost_bytes == device.moment.lost_bytes
        if card.predicted_peak_reserved_bytes is not None:
            (result,) = [each for each in report.what_if if each.change == card.command and each.device == card.device]
            assert result.is_offered
            assert is_relevant(result) or is_solution(result)
        if card.code:
            titles = [fix.title for finding in report.findings for fix in finding.fixes if finding.code == card.code]
            optional = [f"nothing is necessary. For a lower peak: {title}" for title in titles]
            assert card.remedy in (optional if card.severity == "ok" else titles)


@pytest.mark.parametrize(
    ("after", "ended", "is_said"),
    [
        (True, RecordingEnd("exit"), True),
        (False, RecordingEnd("exit"), False),  # it may have ended because of the error
        (True, RecordingEnd("exit", "ValueError"), False),
        (True, RecordingEnd("oom"), False),
    ],
)
def test_an_error_that_the_program_caught_is_named_as_such(heap, after, ended, is_said):
    heap.segment(0, 100 * MIB)
    heap.alloc(0, 60 * MIB)
    heap.oom(80 * MIB)
    if after:
        heap.alloc(60 * MIB, 20 * MIB)
    trace = replace(heap.trace(), recorded=ProcessMarks((), {}, {}, {}, {}, ended=ended))
    assert ("The program caught this error and continued." in headline(trace, Context(), ())) == is_said
