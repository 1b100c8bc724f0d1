"""The memory that would end retries is the least additional memory with which a replay has no retries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memdiag.allocator.subject import Subject
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.habits_judged import _retries
from memdiag.sources import load

PAGE = 2 << 20


def facts(trace, **options):
    return {
        evidence.what: evidence.value
        for finding in build_report(trace, **options).findings
        if finding.code == "MD401"
        for evidence in finding.evidence
    }


@pytest.fixture
def crowded(goldens):
    return load(goldens / "cuda-2.13.0-oom-dump" / "snapshot.pickle")


def test_headroom_is_the_least_with_which_no_request_waits(crowded):
    more = facts(crowded)["additional memory that would avoid all retries (replayed)"]
    subject = Subject.of(crowded, crowded.devices[0])
    own = subject.recorded
    assert more % PAGE == 0
    assert _retries(subject, own) > 0
    assert _retries(subject, replace(own, capacity_bytes=own.capacity_bytes + more)) == 0
    assert _retries(subject, replace(own, capacity_bytes=own.capacity_bytes + more - PAGE)) > 0


def test_where_even_twice_the_device_is_not_enough_it_says_how_many_remain(goldens):
    found = facts(load(goldens / "cuda-2.13.0-retries" / "snapshot.pickle"))
    assert (
        0
        < found["retries that remain on a device twice as large"]
        < found["retries: cache releases for which a request waited"]
    )


def test_a_long_trace_is_not_searched_and_nothing_is_said_without_replays(crowded, monkeypatch):
    plain = facts(crowded, replay=False)
    assert plain
    monkeypatch.setattr("memdiag.analyzers.support.habits_judged.MOST_SEARCHED", 10)
    # Settings that are not a remedy.
    settings = {what for what in facts(crowded) if what.endswith("replayed on this trace")}
    assert {what: value for what, value in facts(crowded).items() if what not in settings} == plain
