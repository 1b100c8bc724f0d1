"""``memdiag record --holders`` finds the variable that holds the tensors of a growing call site."""

from __future__ import annotations

import pickle

import pytest

from memdiag.analyzers import leaks
from memdiag.analyzers.support.context import Context
from memdiag.recorder.holding import Holding
from memdiag.sources.run_facts import holders_in

HOLDERS = {
    "list": ("held by", "history[…]"),
    "sum": ("held by the autograd graph of", "total"),
    "closure": ("held by", "kept in the closure of later.<locals>.call (holds.py:24)"),
    "dict": ("held by", "cache[…]"),
    "sizes": ("held by", "cache[…]"),
}


def holding(record, how, *, seconds="60", **settings):
    return record("holds.py", "{out}", record.device, how, seconds, settings={"holders": True, **settings})


def own(run):
    return pickle.loads(run.path().read_bytes())["memdiag"]["holders"]


@pytest.mark.parametrize("how", HOLDERS)
def test_the_holder_of_a_growing_call_site_is_named(record, how):
    run = holding(record, how)
    (finding,) = leaks.analyze(run.trace, Context())
    assert finding.code == "MD301"
    assert HOLDERS[how] in {(row.what, row.where) for row in finding.evidence}
    assert HOLDERS[how][1] in finding.fixes[0].title


def test_the_search_keeps_no_object(record):
    assert all(holding(record, "dict").truth["freed"])


def test_looks_become_rarer(record):
    run = holding(record, "dict")
    assert len(own(run)["look_seconds"]) == len((1, 4, 8, 16, "exit"))


def test_no_pass_begins_that_would_end_after_the_time_limit(record):
    found = own(holding(record, "closure", seconds="0"))
    assert not found["is_complete"]
    assert not found["rows"]


def test_without_the_option_nothing_is_searched(cpu):
    run = cpu("holds.py", "{out}", "cpu", "dict", "60")
    assert own(run) == {}
    (finding,) = leaks.analyze(run.trace, Context())
    assert not [row for row in finding.evidence if row.what.startswith("held")]


def test_a_process_without_growth_is_not_searched():
    looks = Holding(None, [], is_on=False)
    looks.stepped(True)
    assert looks.content("exit") == {}


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"device": 0, "addr": 1, "mark": 5, "count": 1, "nodes": 0, "chains": ["a"]},
        {"device": 0, "addr": -1, "mark": 0, "count": 1, "nodes": 0, "chains": ["a"]},
        {"device": 0, "addr": 1, "mark": 0, "count": 1, "nodes": 0, "chains": ["\x1b[2J"]},
        {"device": 0, "addr": 1, "mark": 0, "count": 1, "nodes": 0, "chains": "a"},
        "row",
    ],
)
def test_damaged_rows_are_ignored(row):
    good = {"device": 0, "addr": 1, "mark": 0, "count": 1, "nodes": 0, "chains": ["a"]}
    assert len(holders_in({"holders": {"rows": [row, good]}}, 5)) == 1
