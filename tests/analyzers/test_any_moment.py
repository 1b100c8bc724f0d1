"""Every analyzer works at every moment of every golden snapshot, and reports nothing without evidence."""

from itertools import pairwise

import pytest

from memdiag.analyzers.support.context import Context
from memdiag.registry import ANALYZERS
from memdiag.results.finding import SEVERITIES
from memdiag.sources import load
from memdiag.units import parse_bytes


def check(finding):
    assert finding.severity in SEVERITIES
    assert finding.evidence
    assert finding.weight_bytes >= 0
    assert all(
        evidence.value is None or evidence.unit != "bytes" or evidence.value >= 0 for evidence in finding.evidence
    )
    for fix in finding.fixes:
        assert fix.title
        assert "\n" not in fix.change
    if finding.saving is not None:
        assert 0 <= finding.saving.low_bytes <= finding.saving.expected_bytes <= finding.saving.high_bytes
    return finding


@pytest.mark.parametrize("name", ANALYZERS)
def test_any_moment_can_be_looked_at(golden, name):
    trace = load(golden / "snapshot.pickle")
    most = max((device.num_events for device in trace.devices), default=0)
    moments = ["peak", *sorted({-1, 0, most // 3, most // 2, most - 1} & set(range(-1, most)))]
    for at in moments:
        for finding in ANALYZERS[name].analyze(trace, Context(at=at)):
            check(finding)


@pytest.mark.parametrize("name", ["fragmentation"])
def test_bytes_in_a_title_stand_in_the_evidence(golden, name):
    trace = load(golden / "snapshot.pickle")
    for finding in ANALYZERS[name].analyze(trace, Context()):
        words = finding.title.split()
        shown = [f"{number} {unit}" for number, unit in pairwise(words) if unit.strip(",:)") in ("MiB", "GiB")]
        values = [evidence.value for evidence in finding.evidence if evidence.unit == "bytes"]
        for text in shown:
            number, unit = text.split()
            size = parse_bytes(number + unit.strip(",:)"))
            assert any(abs(value - size) <= 0.01 * max(size, 1) for value in values), (finding.title, text)
