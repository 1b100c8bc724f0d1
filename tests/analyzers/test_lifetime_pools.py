"""Replays judge lifetime-segregated pools, and the memory for HCCL is computed from the numbers of the trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memdiag.allocator.policies import POLICIES
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.subject import Subject
from memdiag.analyzers import lifetime_pools
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support import pools_judged
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.pools_judged import Run, _Runs, _verdict, judged, most_live, with_advice
from memdiag.render.simulate.json import as_dict
from memdiag.render.simulate.terminal import render
from memdiag.results.prediction import PredictionReport
from memdiag.runs.simulation import report_of
from memdiag.sources.torch_snapshot import read
from memdiag.trace.model import Trace
from memdiag.units import GIB, MIB


def runs(plain: tuple[int, int], expandable: tuple[int, int] | None, pools: tuple[int, int], bound: int = GIB) -> _Runs:
    """Returns replay results with these peaks (GiB) and numbers of failures."""
    made = [
        None if each is None else Run(kind, each[0] * GIB, each[1])
        for kind, each in (("recorded", plain), ("expandable", expandable), ("lifecycle", pools))
    ]
    assert made[0] is not None
    assert made[2] is not None
    return _Runs(made[0], made[1], (made[2],), bound)


@pytest.mark.parametrize(
    ("found", "pays", "said"),
    [
        (runs((9, 0), (8, 0), (7, 0)), True, "their peak of 7.00 GiB is 1.00 GiB below that of expandable segments"),
        (runs((9, 0), (7, 0), (8, 0)), False, "their peak is 8.00 GiB, and expandable segments need 7.00 GiB"),
        (runs((9, 0), (8, 0), (8, 0)), False, "expandable segments need 8.00 GiB"),
        (runs((9, 1), (9, 2), (8, 0)), True, "only with them does the run fit on a card of 10.00 GiB"),
        (
            runs((9, 1), (8, 0), (9, 3)),
            False,
            "they run out of memory on a card of 10.00 GiB; expandable segments fit with 8.00 GiB",
        ),
        (runs((9, 1), None, (9, 3)), False, "they also run out of memory on a card of 10.00 GiB"),
        (
            runs((9, 1), (9, 1), (9, 3), 11 * GIB),
            False,
            "11.00 GiB is live at once, too much for any allocator on a card of 10.00 GiB",
        ),
        (runs((8, 0), None, (7, 0)), True, "1.00 GiB below that of the recorded settings"),
    ],
)
def test_pools_pay_if_nothing_else_fits_or_they_hold_least(found: _Runs, pays: bool, said: str) -> None:
    verdict, title = _verdict(found, 10 * GIB, error=0)
    assert verdict == pays
    assert said in title
    assert ("would help" in title) == pays


def test_a_gain_within_the_error_of_the_model_or_hardly_any_is_none() -> None:
    assert not _verdict(runs((9, 0), (8, 0), (7, 0)), None, error=GIB)[0]
    pays, title = _verdict(runs((999, 0), (999, 0), (998, 0)), None, error=0)
    assert not pays
    assert title.endswith("their peak of 998.00 GiB is only 1.00 GiB below that of the recorded settings")


@pytest.fixture(scope="module")
def npu(request: pytest.FixtureRequest) -> Trace:
    (path,) = (Path(request.config.rootpath) / "tests" / "goldens").glob("npu-*-recorded/snapshot.pickle")
    return read(path)


def test_variables_that_the_recorder_kept_are_settings_of_the_trace(npu: Trace) -> None:
    assert all(isinstance(value, str) for value in npu.settings.values())
    for text, size in (("120", 240 * MIB), ("", 400 * MIB), ("many", 400 * MIB), ("0", 400 * MIB)):
        trace = replace(npu, settings={"HCCL_BUFFSIZE": text} if text else {})
        assert lifetime_pools.buffer_bytes(trace) == size


def test_the_question_is_asked_by_the_rule_of_thumb_and_answered_by_replays(
    npu: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(lifetime_pools.analyze(npu, Context())) == []
    monkeypatch.setattr(lifetime_pools, "POOLS_GAP", MIB)
    (question,) = lifetime_pools.analyze(npu, Context())
    assert "may help" in question.title
    assert list(lifetime_pools.analyze(replace(npu, backend="cuda"), Context())) == []
    (answer,) = [finding for finding in build_report(npu).findings if finding.code == "MD114"]
    assert answer.title.startswith("Lifetime-segregated pools would")
    (asked,) = [finding for finding in build_report(npu, replay=False).findings if finding.code == "MD114"]
    assert asked.title == question.title


def test_the_answer_has_every_rival_the_bound_and_the_part_of_hccl(npu: Trace) -> None:
    subject = Subject.of(npu, npu.devices[0])
    found = judged(subject, like=replace(subject.recorded, capacity_bytes=64 * GIB))
    assert found is not None
    facts = {item.what: item for item in found.evidence}
    peaks = [item.value for what, item in facts.items() if what.startswith("reserved peak")]
    bound = facts["peak of live bytes (lower bound for every allocator)"].value
    assert len(peaks) == 4
    assert isinstance(bound, int)
    assert all(isinstance(peak, int) and peak >= bound for peak in peaks)
    assert bound == most_live(subject.workload)
    if "bound" in POLICIES:
        assert bound == int(subject.replay(Scenario("bound", "", "2.13", None), log=False).reserved.max())
    kept = facts["device memory that a memory fraction of 0.94 leaves free"]
    assert kept.value == 64 * GIB - int(0.94 * 64 * GIB)
    assert kept.where == (
        "room for the buffers of 9 communicators; with this memory fraction, the pools fit; the fraction is the "
        "example in the feature's documentation"
    )
    count = facts["number of HCCL communicators"]
    assert (count.value, "--communicators N" in count.where) == ("unknown", True)


def test_the_share_is_worked_out_from_the_communicators_that_are_given(npu: Trace) -> None:
    subject = Subject.of(npu, npu.devices[0])
    card = replace(subject.recorded, policy="lifecycle", conf="", capacity_bytes=64 * GIB)
    report = with_advice(report_of(subject, ()), subject, [card], communicators=12)
    assert report.advice is not None
    facts = {item.what: item for item in report.advice.evidence}
    assert facts["HCCL buffers of all communicators"].value == 12 * 400 * MIB
    kept = facts["device memory that a memory fraction of 0.92 leaves free"]  # 1 - 4.69 / 64, rounded down
    assert kept.where == "room for the buffers of 13 communicators; with this memory fraction, the pools fit"
    assert isinstance(kept.value, int)
    assert kept.value >= 12 * 400 * MIB


def test_what_was_outside_of_pytorch_at_failures_sets_the_fraction(npu: Trace) -> None:
    subject = Subject.of(npu, npu.devices[0])
    limits = replace(subject.limits, steps=np.array([[0, 6 * GIB]]))
    found = judged(replace(subject, limits=limits), like=replace(subject.recorded, capacity_bytes=64 * GIB))
    assert found is not None
    facts = {item.what: item for item in found.evidence}
    assert (
        facts["device memory in use outside PyTorch's allocator"].where
        == "when memory ran out; this is room for the buffers of 15 communicators at most"
    )
    assert "device memory that a memory fraction of 0.90 leaves free" in facts


def test_simulate_says_it_where_such_pools_were_simulated(npu: Trace) -> None:
    subject = Subject.of(npu, npu.devices[0])
    empty: PredictionReport = report_of(subject, ())
    own = subject.recorded
    assert with_advice(empty, subject, [own]).advice is None
    report = with_advice(empty, subject, [own, replace(own, policy="lifecycle", conf="")])
    assert report.advice is not None
    assert report.advice.title.rstrip(".") in " ".join(render(report).split())
    assert as_dict(report)["advice"]["code"] == "MD114"


def test_a_switch_is_only_told_of_where_the_pools_pay(npu: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject.of(npu, npu.devices[0])
    for pools, changes in (
        ((1, 0), ["--memory-fragmentation", "torch_npu.npu.set_per_process_memory_fraction(0.94)"]),
        ((9, 0), None),
    ):
        found = runs((5, 0), (4, 0), pools)
        monkeypatch.setattr(pools_judged, "_runs", lambda *_, found=found: found)
        answer = judged(subject, like=replace(subject.recorded, capacity_bytes=64 * GIB))
        assert answer is not None
        told = [fix.change for fix in answer.fixes]
        assert told == changes if changes else "--memory-fragmentation" not in told
        assert (answer.saving is not None) == (changes is not None)
