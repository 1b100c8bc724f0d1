"""memdiag fix measures each chosen remedy alone."""

from dataclasses import replace
from pathlib import Path

from memdiag.fix import trial
from memdiag.fix.base import Proposal
from memdiag.fix.edit import Edit
from memdiag.fix.trial import PLENTY, ProgramTrial
from memdiag.fix.undo import Attempt
from memdiag.results.fix import FixPeaks, FixReport, FixStep
from memdiag.runs.listener import SILENT
from memdiag.runs.recording import Order
from memdiag.text import phrase

FITS, MISSES = FixPeaks(5, 4, fits=True), FixPeaks(9, 8, fits=False)
MEASURED = FixPeaks(7, 6, fits=True)


def step(name, alone, *, is_chosen=True):
    text = phrase("fix.no-grad")
    return FixStep(name, text, (), "", text, True, is_chosen, False, 0.0, alone)


def report(*steps):
    facts = dict.fromkeys(("device", "exit_status", "calibration_error_bytes", "losses", "folder"))
    facts |= {"command": "", "budget_bytes": 10, "outside_bytes": 1, "trace": "run/rank0.pkl", "written": ()}
    return FixReport(recorded=MISSES, steps=steps, predicted=FITS, actual=MEASURED, **facts)


def measured(monkeypatch, given, *, ended_well=True):
    """The report after the measurements, and what was run: the names of remedies, and the size of the device."""
    runs = []

    def run(_self, chosen, _inside, _name, size=None):
        runs.append(([each.name for each in chosen], size))
        return None, Attempt(replace(MEASURED, reserved_bytes=10 + len(runs)), ended_well)

    monkeypatch.setattr(trial.ProgramTrial, "_run", run)
    folder = Path()
    made = ProgramTrial(Order(()), None, "", SILENT, folder, folder, folder)
    text = phrase("fix.no-grad")
    proposals = [Proposal(each.name, text, (), "", text, Edit()) for each in given.chosen]
    return made.measured_alone(given, proposals), runs


def test_the_only_remedy_is_not_run_again(monkeypatch):
    after, runs = measured(monkeypatch, report(step("one", FITS), step("other", FITS, is_chosen=False)))
    assert runs == []
    assert [each.actual_alone for each in after.steps] == [MEASURED, None]


def test_a_program_that_would_not_fit_with_one_remedy_gets_enough_memory(monkeypatch):
    given = report(step("one", MISSES), step("other", FITS, is_chosen=False), step("two", FITS))
    after, runs = measured(monkeypatch, given)
    assert runs == [(["one"], PLENTY), (["two"], None)]
    peaks = [each.actual_alone and each.actual_alone.reserved_bytes for each in after.steps]
    assert peaks == [11, None, 12]


def test_a_run_that_fails_measures_nothing(monkeypatch):
    after, _ = measured(monkeypatch, report(step("one", MISSES), step("two", FITS)), ended_well=False)
    assert [each.actual_alone for each in after.steps] == [None, None]
