"""Savings of remedies are replayed on the trace; what cannot be calibrated is not quoted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memdiag.allocator.replay import replay
from memdiag.analyzers.report import build_report
from memdiag.analyzers.simulation import Subject, predict
from memdiag.analyzers.what_if import _with_saving
from memdiag.sources import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt-train.pickle"


@pytest.fixture(scope="module")
def trace():
    return load(EXAMPLE)


def test_a_saving_is_that_of_a_replay(trace):
    report = build_report(trace)
    (single,) = [result for result in report.what_if if result.change.endswith("=expandable_segments:True")]
    assert single.calibration.startswith("exact")
    recorded = int(trace.devices[0].usage.reserved.max())
    assert single.saved_bytes == recorded - single.peak_reserved_bytes > 0
    (finding,) = [finding for finding in report.findings if finding.code == "MD201"]
    assert finding.saving is not None
    assert (finding.saving.basis, finding.saving.expected_bytes) == ("simulated", single.saved_bytes)
    assert finding.saving.repro == f"memdiag simulate {EXAMPLE} --conf expandable_segments:True"


def test_alternatives_are_not_combined(trace):
    together = [result.change for result in build_report(trace).what_if if result.is_combination]
    assert not [change for change in together if "expandable" in change and "max_split" in change]


def test_nothing_is_quoted_without_a_replay(trace):
    for report in (build_report(trace, replay=False), build_report(replace(trace, backend="cpu"))):
        assert report.what_if == ()
        assert [finding.saving for finding in report.findings if finding.saving and finding.saving.basis == "simulated"] == []


def test_nothing_is_quoted_from_a_model_that_is_not_the_recordings(trace, monkeypatch):
    def another(workload, policy, **settings):
        settings["conf"] = "expandable_segments:True,roundup_power2_divisions:8"
        return replay(workload, policy, **settings)

    monkeypatch.setattr("memdiag.allocator.replay.replay", another)
    assert build_report(trace).what_if == ()


def test_a_replay_that_fails_leaves_the_diagnosis(trace, monkeypatch):
    def broken(*_, **__):
        raise IndexError("boom")

    monkeypatch.setattr("memdiag.allocator.replay.replay", broken)
    report = build_report(trace)
    assert report.what_if == ()
    assert "IndexError: boom" in next(note.text for note in report.notes if note.code == "MD925")
    assert report.findings


def test_a_saving_is_what_simulate_tells(goldens):
    for path in sorted(goldens.glob("*/*.p*kl*")):
        trace = load(path)
        for result in build_report(trace).what_if if trace.num_events < 20_000 else ():
            device = next(each for each in trace.devices if each.device == result.device)
            subject = Subject.of(trace, device)
            told, _, _ = predict(subject, replace(subject.recorded, conf=result.change.partition("=")[2]))
            assert result.saved_bytes == told.saved_bytes, (path, result.change)


def test_what_a_replay_refutes_comes_last_and_saves_nothing(trace):
    report = build_report(trace)
    (finding,) = [finding for finding in report.findings if finding.code == "MD201"]
    line = finding.fixes[0].change
    for ooms, saved, words in ((2, 1 << 30, "memory runs out all the same"), (0, 0, "it saves nothing")):
        results = [replace(result, num_ooms=ooms, saved_bytes=saved) for result in report.what_if if result.change == line]
        told = _with_saving(replace(finding, saving=None), results)
        assert told.fixes[-1].change == line
        assert words in told.fixes[-1].caveat
        assert told.saving is None


def test_what_helps_one_device_is_not_refuted_by_another(trace):
    report = build_report(trace)
    (finding,) = [finding for finding in report.findings if finding.code == "MD201"]
    line = finding.fixes[0].change
    mine = [result for result in report.what_if if result.change == line]
    others = [replace(result, device=result.device + 1, num_ooms=1) for result in mine]
    told = _with_saving(replace(finding, device=None, saving=None), [*mine, *others])
    assert told.fixes == finding.fixes
    assert told.saving == finding.saving
