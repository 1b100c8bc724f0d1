from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.analyzers import leaks
from memdiag.analyzers.support.context import Context
from memdiag.sources import load
from tests.analyzers.page_examples import golden
from tests.training import MIB, SEGMENT, STEP, Training


def trained(steps, leak=0, program=None, scales=None, **options):
    program = program or Training()
    program.initialise()
    for k in range(steps):
        size = leak(k) if callable(leak) else leak
        program.step(leak=size, scale=scales[k] if scales is not None else 1.0, **options)
    return program


def findings(trace, **options):
    return {finding.code: finding for finding in leaks.analyze(trace, Context(**options))}


def number(finding, words):
    return next(evidence.value for evidence in finding.evidence if words in evidence.what)


def test_a_leak_is_found_with_its_place_and_slope():
    finding = findings(trained(10, leak=8 * MIB).trace())["MD301"]
    assert finding.title == "Memory grows by 8.00 MiB per step at train.py:70 keep"
    assert number(finding, "growth") == 8 * MIB
    assert finding.evidence[0].unit == "bytes/step"
    assert finding.evidence[0].where == "train.py:70 keep"
    assert number(finding, "still live at the end") == 10 * 8 * MIB
    assert number(finding, "number of accumulated tensors") == 10
    assert finding.severity == "warning"


def test_a_leak_every_few_steps_has_the_mean_slope():
    finding = findings(trained(40, leak=lambda k: 6 * MIB if k % 2 else 0).trace())["MD301"]
    assert number(finding, "growth") == pytest.approx(3 * MIB, rel=0.05)


def test_a_small_leak_is_for_information_and_a_tiny_one_nothing():
    # These traces reserve 64 GiB, and a warning requires that 1,000 steps would take a tenth of it.
    assert findings(trained(10, leak=3 * MIB).trace())["MD301"].severity == "info"
    assert findings(trained(10, leak=MIB // 2).trace()) == {}


def test_the_device_is_full_after_so_many_steps():
    finding = findings(trained(10, leak=16 * MIB).trace(capacity_bytes=SEGMENT + 160 * MIB))["MD301"]
    assert number(finding, "until the device is full") == 10


def test_without_stacks_a_leak_is_named_by_size():
    finding = findings(trained(12, leak=3 * MIB).trace(stacks=False))["MD301"]
    assert "tensors of 3.00 MiB (no call stack)" in finding.title
    assert number(finding, "growth") == 3 * MIB


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        (10, {}),  # constant memory, optimizer state in the first step
        (10, {"zero_first": True}),
        (30, {"leak": lambda k: 64 * MIB if k < 3 else 0}),  # warm-up
        (30, {"leak": lambda k: 64 * MIB if k == 20 else 0}),  # once
        (30, {"leak": lambda k: (64 * MIB) >> k if k < 8 else 0}),  # a cache whose growth stops
        (30, {"scales": np.random.default_rng(3).uniform(0.5, 2.0, 30)}),  # batches of different lengths
        (30, {"scales": np.linspace(0.5, 2.0, 30)}),  # a growing batch: activations grow, but are not retained
    ],
)
def test_no_false_alarm(steps, options):
    assert findings(trained(steps, **options).trace()) == {}


def test_optimizer_state_that_comes_in_the_second_step_is_no_leak():
    program = Training()
    program.initialise()
    optimize = program._optimize
    program._optimize = lambda: program.passing(program.size, STEP)
    program.step()
    program._optimize = optimize
    for _ in range(6):
        program.step()
    assert findings(program.trace()) == {}


def test_a_short_trace_is_not_certain():
    assert findings(trained(3, leak=16 * MIB).trace())["MD302"].severity == "info"
    finding = findings(trained(3, leak=128 * MIB).trace())["MD302"]
    assert finding.severity == "warning"
    assert "3 steps are too few" in finding.title
    assert finding.fixes[0].kind == "record"
    assert findings(trained(2, leak=64 * MIB).trace()) == {}
    assert "MD301" in findings(trained(4, leak=64 * MIB).trace())


def test_a_step_that_memory_ran_out_in_has_no_end():
    program = trained(3)
    program.step(until="forward")
    program.fail(1 << 41)
    assert findings(program.trace()) == {}


def test_optimizers_that_run_in_backward_do_not_hide_a_leak():
    program = trained(9, leak=16 * MIB)
    program.span("ProfilerStep#9", True)  # the last optimizer runs after the step has ended
    program.passing(MIB, STEP)
    program.span("ProfilerStep#9", False)
    found = findings(program.trace(spans="ProfilerStep"))
    assert number(found["MD301"], "growth") == 16 * MIB


@given(st.lists(st.integers(0, 64 * MIB), min_size=5, max_size=40))
def test_the_slope_of_any_curve_is_between_its_smallest_and_largest_growth(growth):
    curve = np.cumsum(growth)
    slope = leaks._slope(curve, 0.0)
    assert slope == 0 or min(growth) <= slope <= max(growth)


def test_the_curve_counts_what_is_live_at_the_end_of_each_step():
    born, until, size = np.array([0, 1, 1]), np.array([2, 4, 3]), np.array([1, 10, 100])
    assert leaks._curve(born, until, size, 4).tolist() == [1, 111, 110, 10]


def test_the_golden_leak(golden):
    truth = json.loads((golden / "truth.json").read_text())
    found = findings(load(golden / "snapshot.pickle"))
    if "leak" not in truth:
        assert "MD301" not in found
        return
    finding = found["MD301"]
    assert number(finding, "growth") == pytest.approx(truth["leak"]["bytes_per_step"], abs=512)
    assert number(finding, "step ends at which memdiag compared live memory") == truth["leak"]["steps"]
    assert f" {truth['leak']['function']}" in finding.title


def test_a_real_leak(shared):
    name = "data/snapshots/Ascend__msinsight__scripts__MemSnapDump__test__test-data__snapshot_expandable.pkl"
    finding = findings(load(shared / name))["MD302"]
    assert "memory_leaks_demo.py:12 train_one_step" in finding.title
    assert number(finding, "growth") == pytest.approx(40 * MIB, rel=0.001)


def test_long_real_runs_do_not_leak(shared):
    for name in ("Da1sypetals__tomi__snapshots__snapshot.pickle", "JasperSolt__EoR_NN__snapshot.pickle"):
        assert findings(load(shared / "data/snapshots" / name)) == {}


def _growing(steps):
    return leaks.analyze(trained(steps, leak=128 * MIB).trace(), Context())


PAGE_EXAMPLES = {
    "MD301": lambda: golden("cuda-2.13.0-leak"),
    "MD302": lambda: _growing(3),
}
