"""memdiag fix runs a program with values that it accepts (--values auto), and keeps them for all runs."""

from types import SimpleNamespace

import memdiag.fix.run
from memdiag.fix.run import _with_values
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
