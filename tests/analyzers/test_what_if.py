"""Reports quote savings only from a replay of the trace, and only if that replay is calibrated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memdiag.allocator.replay import serve
from memdiag.allocator.subject import Subject
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.candidates import candidates
from memdiag.analyzers.support.offered import offered
from memdiag.diagnosis.refuted import judged_results, without_refuted
from memdiag.results.finding import Fix
from memdiag.runs.simulation import predict
from memdiag.sources import load
from memdiag.units import MIB

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
        assert [
            finding.saving for finding in report.findings if finding.saving and finding.saving.basis == "simulated"
        ] == []


def test_nothing_is_quoted_from_a_model_that_is_not_the_recordings(trace, monkeypatch):
    def another(workload, scenario, *beginning, log=False):
        other = replace(scenario, conf="expandable_segments:True,roundup_power2_divisions:8")
        return serve(workload, other, *beginning, log=log)

    monkeypatch.setattr("memdiag.allocator.replay.serve", another)
    assert build_report(trace).what_if == ()


def test_a_replay_that_fails_leaves_the_diagnosis(trace, monkeypatch):
    def broken(*_, **__):
        raise IndexError("boom")

    monkeypatch.setattr("memdiag.allocator.replay.serve", broken)
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


def one(trace, code="MD201"):
    """Returns the only finding with that code, and the replay of its first remedy."""
    report = build_report(trace)
    (finding,) = [finding for finding in report.findings if finding.code == code]
    (result,) = [result for result in report.what_if if result.change == finding.fixes[0].change]
    return finding, result


@pytest.mark.parametrize(
    ("ooms", "saved", "reason"),
    [
        (2, 1 << 30, "the replay runs out of memory"),
        (0, 0, "saves no memory"),
        (0, -(1 << 27), "reserves 128.00 MiB more"),
    ],
)
def test_a_refuted_remedy_is_not_offered(trace, ooms, saved, reason):
    finding, result = one(trace)
    results = judged_results([replace(result, num_ooms=ooms, saved_bytes=saved)])
    (left,) = offered([replace(finding, saving=None)], results, {})
    assert result.change not in [fix.change for fix in left.fixes]
    assert left.evidence[-1].value == reason
    assert left.saving is None


def test_a_warning_without_a_remedy_is_information(trace):
    finding, result = one(trace)
    only = replace(finding, fixes=finding.fixes[:1], saving=None)
    (left,) = offered([only], judged_results([replace(result, saved_bytes=0)]), {})
    assert (left.severity, left.fixes) == ("info", ())


def test_a_dominated_remedy_is_not_offered(trace):
    finding, result = one(trace)
    worse = replace(
        result,
        change=result.change + ",x:1",
        peak_reserved_bytes=result.peak_reserved_bytes + 1,
        num_driver_calls=10**6,
    )
    (left,) = offered(
        [replace(finding, fixes=(Fix("worse", "env", worse.change), *finding.fixes))],
        judged_results([worse, result]),
        {},
    )
    assert [fix.change for fix in left.fixes if fix.kind == "env"] == [result.change]


def test_what_helps_one_device_is_not_refuted_by_another(trace):
    finding, result = one(trace)
    elsewhere = replace(result, device=result.device + 1, num_ooms=1)
    (left,) = offered(
        [replace(finding, device=None, saving=None)], judged_results([result]) + judged_results([elsewhere]), {}
    )
    assert left.fixes == finding.fixes
    assert left.saving == finding.saving


def test_no_remedy_that_saves_nothing_is_offered_anywhere(trace, goldens):
    traces = [trace, *(load(path) for path in sorted(goldens.glob("*/*.p*kl*")))]
    for each in (each for each in traces if each.num_events < 20_000):
        report = build_report(each)
        rejected = {result.change for result in report.what_if if result.rejection_reason} - {
            r.change for r in report.what_if if r.is_offered
        }
        lines = {
            fix.change for finding in report.findings if not finding.code.startswith("MD6") for fix in finding.fixes
        }
        assert not rejected & lines, each.path


def test_a_setting_that_saves_a_relevant_share_is_in_a_finding_and_a_large_one_in_a_warning(shared):
    for path in sorted((shared / "data" / "snapshots").glob("*")):
        report = build_report(load(path))
        for result in report.what_if:
            if result.saved_bytes < max(0.02 * result.baseline_bytes, 32 * MIB) or result.num_ooms:
                continue
            is_large = result.saved_bytes >= 0.1 * result.baseline_bytes
            savings = [
                finding.saving.expected_bytes
                for finding in report.findings
                if finding.saving and finding.device == result.device and (finding.severity != "info" or not is_large)
            ]
            assert max(savings, default=0) >= 0.99 * result.saved_bytes, path


def test_the_best_setting_without_a_finding_gets_one(trace):
    _, result = one(trace)
    fix = Fix("Do it", "env", result.change)
    (found,) = offered([], [replace(result, codes=())], {result.change: fix})
    assert (found.code, found.severity, found.fixes) == ("MD208", "warning", (fix,))
    assert found.saving.expected_bytes == result.saved_bytes
    small = replace(
        result,
        saved_bytes=result.saved_bytes // 100,
        peak_reserved_bytes=result.baseline_bytes - result.saved_bytes // 100,
    )
    assert offered([], [small], {}) == []


def test_a_setting_that_saves_little_is_a_warning_only_on_a_full_device(trace):
    _, result = one(trace)
    baseline, saved = 1000 * MIB, 50 * MIB
    few = replace(result, codes=(), saved_bytes=saved, peak_reserved_bytes=baseline - saved)
    for nearly_full, severity in (((), "info"), ((few.device,), "warning"), ((few.device + 1,), "info")):
        (found,) = offered([], [few], {}, nearly_full)
        assert (found.code, found.severity) == ("MD208", severity)


def test_a_message_does_not_offer_what_the_trace_refutes(trace):
    finding, result = one(trace)
    advice = replace(
        finding, fixes=(Fix("Set it", "env", f"export PYTORCH_ALLOC_CONF='{result.conf}'"), Fix("Batch", "code"))
    )
    (kept,) = without_refuted([advice], [result])
    assert kept.fixes == advice.fixes
    (left,) = without_refuted([advice], [replace(result, rejection_reason="saves nothing")])
    assert [fix.title for fix in left.fixes] == ["Batch"]
    other = replace(result, change="export PYTORCH_ALLOC_CONF=max_split_size_mb:128", rejection_reason="saves nothing")
    advice = replace(finding, fixes=(Fix("Split", "env", "export PYTORCH_ALLOC_CONF=max_split_size_mb:1697"),))
    (left,) = without_refuted([advice], [other])
    assert left.fixes == ()


def test_candidates_that_a_possible_version_lacks_are_not_replayed(trace):
    device = trace.devices[0]
    old = replace(trace, torch_version="2.0?")
    lines = [fix.change for fix in candidates(old, device, AllocatorSettings.of(old))]
    assert lines
    assert not [line for line in lines if "expandable" in line]
