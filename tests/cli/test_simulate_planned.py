"""``memdiag simulate --policy plan,bound`` prints the planned placement and the lower bound."""

from __future__ import annotations

import json

import numpy as np
import pytest

from memdiag.cli.main import main
from memdiag.sources import load


@pytest.fixture
def trace(goldens):
    return goldens / "cuda-2.13.0-recorded" / "snapshot.pickle"


@pytest.fixture
def asked(capsys):
    def ask(*arguments):
        assert main(["simulate", "--json", *map(str, arguments)]) == 0
        return json.loads(capsys.readouterr().out)["results"]

    return ask


def test_plan_and_bound_are_beside_each_other(asked, trace):
    plan, bound = asked(trace, "--policy", "plan,bound")
    assert plan["policy"] == "plan"
    assert bound["peak_reserved_bytes"] <= plan["peak_reserved_bytes"] <= 1.02 * bound["peak_reserved_bytes"]
    assert plan["planned"]["run_live_peak_bytes"] == bound["peak_reserved_bytes"] == bound["peak_allocated_bytes"]
    assert (
        plan["planned"]["next_step_requests"]["num_planned"]
        == plan["planned"]["next_step_requests"]["num_requests"]
        > 0
    )
    assert "planned" not in bound
    for result in (plan, bound):
        split = result["fragmentation"]
        parts = sum(split[f"{name}_bytes"] for name in ("rounding", "pending", "stranded", "foreign", "cache"))
        assert result["peak_reserved_bytes"] - parts <= result["peak_requested_bytes"]
    assert bound["fragmentation"]["cache_bytes"] == bound["fragmentation"]["stranded_bytes"] == 0


def test_the_smallest_card_is_the_bound_and_the_plan_in_pages(asked, trace):
    plan, bound = asked(trace, "--policy", "plan,bound", "--min-capacity")
    for result in (plan, bound):
        assert 0 <= result["min_capacity_bytes"] - result["peak_reserved_bytes"] <= 4 << 20
    (tight,) = asked(trace, "--policy", "bound", "--capacity", bound["peak_reserved_bytes"] - 512)
    assert tight["num_ooms"] > 0
    assert tight["first_oom"]["shortfall_bytes"] > 0


def test_the_page_says_how_the_plan_did(capsys, trace):
    assert main(["simulate", "--policy", "plan", str(trace)]) == 0
    page = capsys.readouterr().out
    assert "run A: the plan of step 1 (which needs the most memory) takes" in page
    assert "as planned" in page
    assert "100.0%" in page


def test_rows_and_a_trace_are_written(asked, trace, tmp_path):
    for policy in ("plan", "bound"):
        rows, out = tmp_path / f"{policy}.npz", tmp_path / f"{policy}.pkl"
        (result,) = asked(trace, "--policy", policy, "--rows", rows, "--out", out)
        columns = np.load(rows)
        assert int(columns["reserved"].max()) == result["peak_reserved_bytes"]
        device = load(out).devices[0]
        assert int(device.usage.reserved.max()) == result["peak_reserved_bytes"]
        assert int(device.usage.allocated.max()) == result["peak_allocated_bytes"]
