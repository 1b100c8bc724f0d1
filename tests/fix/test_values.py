"""memdiag fix runs a program with values that it accepts (--values auto), and keeps them for all runs."""

from types import SimpleNamespace

import pytest

import memdiag.fix.run
from memdiag.errors import MemdiagError
from memdiag.fix.run import _with_values, heaviest
from memdiag.runs.listener import SILENT
from memdiag.runs.recording import Order


def test_the_values_that_were_found_are_returned(monkeypatch):
    done, seen = SimpleNamespace(ended=SimpleNamespace(status=0, signals=())), []

    def perform(order, listener):
        seen.append((order.environment["KEPT"], "MEMDIAG_FIX" in order.environment, listener))
        return done, {"MEMDIAG_PHANTOM_VALUES": "finite"}

    monkeypatch.setattr(memdiag.fix.run, "perform_auto", perform)
    order = Order(("python", "train.py"), environment={"KEPT": "1"})
    assert _with_values(order, {"facts": "folder"}, SILENT) == (done, {"MEMDIAG_PHANTOM_VALUES": "finite"})
    assert seen == [("1", True, SILENT)]


@pytest.mark.parametrize("tried", [False, True])
def test_a_failure_after_all_values_were_tried_has_no_advice_to_try_them(tried, monkeypatch):
    read = {"pid": 1, "exception": "builtins.ValueError", "synthetic": {"count": 3, "last": "train.py:7"}, "ended": 1}
    run = SimpleNamespace(recorded=({"trace": "rank0.pkl", "ooms": 0},), processes=(read,))
    ended = SimpleNamespace(status=1, signals=(), exit_code=1)
    done = SimpleNamespace(run=run, ended=ended, folder=SimpleNamespace(shown="run"))
    monkeypatch.setattr(memdiag.fix.run, "_peak", lambda _: 0)
    with pytest.raises(MemdiagError) as error:
        heaviest(done, SimpleNamespace(read_trace=lambda _: None), tried_values=tried)
    assert ("--values auto" in error.value.hint) is not tried
