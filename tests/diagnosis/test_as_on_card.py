"""The remedies for a failure begin with the one on the card of the trace."""

from __future__ import annotations

import pytest

from memdiag.diagnosis.refuted import as_on_card
from memdiag.results.finding import Finding, Fix
from memdiag.results.report import Verdict

SETTING, BATCH, OTHER = Fix("setting", "env", "export X=1"), Fix("batch", "code", ""), Fix("other", "code", "f()")
FINDINGS = (
    Finding("MD201", "free memory", "critical", fixes=(OTHER, SETTING)),
    Finding("MD206", "too little", "critical", fixes=(BATCH,)),
)


@pytest.mark.parametrize(
    ("remedy", "command", "code", "first"),
    [
        ("setting", "export X=1", "MD201", SETTING),
        ("batch", "", "MD206", BATCH),
        ("No remedy is known", "", "", OTHER),
        ("unknown here", "g()", "MD101", OTHER),
    ],
)
def test_the_remedy_of_the_card_comes_first_if_the_findings_have_it(remedy, command, code, first):
    ordered = as_on_card(FINDINGS, Verdict("critical", "out of memory", remedy=remedy, command=command, code=code))
    assert ordered[0].fixes[0] == first
    assert {fix for each in ordered for fix in each.fixes} == {SETTING, BATCH, OTHER}


def test_the_order_stays_without_a_card():
    assert as_on_card(FINDINGS, None) == FINDINGS
