"""Parsing of budgets and tolerances, and errors for invalid ones."""

from __future__ import annotations

import pytest

from memdiag.errors import MemdiagError
from memdiag.gates.budgets import read_budget, read_budgets
from memdiag.gates.judging import SHARE, read_tolerances
from memdiag.gates.metrics import METRICS, Measured, metric_of

GIB = 1 << 30


def measured(**values):
    return Measured(values, {}, reserved_bytes=10 * GIB, capacity_bytes=80 * GIB)


def test_budgets_are_sizes_shares_and_counts():
    found = read_budgets(
        ["peak_reserved=60GiB, stranded=2%", "ooms<=0", "md201=0", "peak-allocated = 512 MiB", "leak_per_step=1MiB"]
    )
    assert [budget.metric.name for budget in found] == [
        "peak_reserved",
        "stranded",
        "ooms",
        "MD201",
        "peak_allocated",
        "leak_per_step",
    ]
    limits = [budget.limit(measured()) for budget in found]
    assert limits == [60 * GIB, int(0.02 * 10 * GIB), 0, 0, GIB // 2, 1 << 20]
    assert read_budget("peak_reserved", "50%", "").limit(measured()) == 40 * GIB
    assert [str(budget) for budget in found[:3]] == ["60.00 GiB", "2% of reserved memory", "0"]


def test_a_percentage_of_an_unknown_size_has_no_limit():
    silent = Measured({}, {}, reserved_bytes=None, capacity_bytes=None)
    assert [read_budget(name, "5%", "").limit(silent) for name in ("stranded", "peak_reserved")] == [None, None]


@pytest.mark.parametrize(
    ("given", "said", "hint"),
    [
        ("peak_reservd=1GiB", "memdiag does not know this metric", "did you mean peak_reserved?"),
        ("nonsense=1", "memdiag does not know this metric", "one of peak, peak_reserved"),
        ("peak_reserved", "not a budget", "NAME=VALUE"),
        ("peak_reserved=", "not a budget", "NAME=VALUE"),
        ("peak_reserved=lots", "not a size", "peak_reserved=60GiB"),
        ("ooms=2%", "cannot be a percentage", "ooms=0"),
        ("ooms=-1", "not a number", "ooms=0"),
        ("stranded=2%,stranded=3%", "already has a budget", "one budget for each"),
        ("peak=" + "9" * 400 + "TiB", "not a size", ""),
    ],
)
def test_invalid_budgets_raise_an_error_with_a_hint(given, said, hint):
    with pytest.raises(MemdiagError) as caught:
        read_budgets([given])
    assert said in caught.value.message
    assert hint in caught.value.hint


def test_every_metric_accepts_a_budget_and_has_a_description():
    for name, metric in METRICS.items():
        assert read_budget(name, "1", "").limit(measured()) == 1
        assert metric.meaning
        assert metric_of(name.upper().replace("_", "-")) is metric


def test_tolerances_are_shares_sizes_and_counts():
    found = read_tolerances(["2%", "stranded=10%,retries=2", "peak_reserved=1GiB"])
    limits = {
        name: found.limit(METRICS[name], 1000)
        for name in ("peak_allocated", "stranded", "retries", "peak_reserved", "ooms")
    }
    assert {name: limit for name, (limit, _) in limits.items()} == {
        "peak_allocated": 1020,
        "stranded": 1100,
        "retries": 1002,
        "peak_reserved": 1000 + GIB,
        "ooms": 1000,
    }
    assert "stranded" in [metric.name for metric in found.watched]
    assert "cache" not in [metric.name for metric in found.watched]
    assert read_tolerances([]).share == SHARE


@pytest.mark.parametrize("given", ["1GiB", "x", "strandd=1%", "stranded=x"])
def test_invalid_tolerances_raise_an_error(given):
    with pytest.raises(MemdiagError):
        read_tolerances([given])


def test_every_metric_is_documented(root):
    page = (root / "docs" / "check.md").read_text(encoding="utf-8")
    assert [name for name in METRICS if f"`{name}`" not in page] == []
