"""The compile time is estimated from the remaining bytecode and the pace so far."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from memdiag.cli import loading
from memdiag.trace import compiled, compiling
from memdiag.trace.linking import num_instructions
from memdiag.trace.temporary import temporary_folder

SCOPE: dict = {"__name__": "memdiag.trace.some"}
SOURCE = """\
def leaf(x): return x + 1
def caller(x): return leaf(x) * 2
def other(x): return x - 1
"""
exec(SOURCE, SCOPE)  # noqa: S102
SIZES = {name: num_instructions(SCOPE[name]) for name in ("leaf", "caller", "other")}


class Cold:
    """A cached function that has not been compiled yet."""

    def __init__(self, name):
        self.py_func = SCOPE[name]
        self.folder = None

    def is_cold(self):
        return True


@pytest.fixture
def told(monkeypatch):
    """Returns the reports of a watch, and functions that begin and end a compilation under a simulated clock."""
    reports, clock = [], SimpleNamespace(now=100.0)
    monkeypatch.setattr(compiling.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(compiling, "_ENOUGH", 1)
    monkeypatch.setattr(compiling, "_PATIENCE", 0.0)
    monkeypatch.setattr(compiled, "KEPT", [Cold("caller"), Cold("other")])
    watch = compiling._CompilationWatch(reports.append)

    def event(name):
        return SimpleNamespace(data={"dispatcher": Cold(name)})

    return SimpleNamespace(
        reports=reports,
        clock=clock,
        begin=lambda name: watch.on_start(event(name)),
        end=lambda name: watch.on_end(event(name)),
    )


def test_all_cold_functions_are_announced_at_once(told):
    told.begin("caller")
    assert [report.has_grown for report in told.reports] == [True]
    assert told.reports[0].share == 0
    assert told.reports[0].seconds_left == pytest.approx(sum(SIZES.values()) * compiling.SECONDS_PER_INSTRUCTION)
    told.begin("leaf")  # called by caller
    told.end("leaf")
    told.end("caller")
    told.begin("other")
    assert not any(report.has_grown for report in told.reports[1:])
    told.end("other")
    assert told.reports[-1].share == 1


def test_the_rest_is_estimated_at_the_pace_so_far(told):
    told.begin("caller")
    told.clock.now += 7.0
    told.begin("leaf")
    told.end("leaf")
    left = SIZES["caller"] + SIZES["other"]
    assert told.reports[-1].seconds_left == pytest.approx(7.0 / SIZES["leaf"] * left)
    told.end("caller")
    told.clock.now += 1000  # not spent in the compiler
    told.begin("other")
    assert told.reports[-1].seconds_left == pytest.approx(7.0 / (SIZES["leaf"] + SIZES["caller"]) * SIZES["other"])


def test_the_first_estimate_waits_until_the_pace_is_known(told, monkeypatch):
    monkeypatch.setattr(compiling, "_PATIENCE", 2.0)
    told.begin("caller")
    told.clock.now += 1.0
    told.begin("leaf")
    assert not any(report.has_grown for report in told.reports)
    told.end("leaf")
    assert told.reports[-1].has_grown
    assert told.reports[-1].seconds_left == pytest.approx(1.0 / SIZES["leaf"] * (SIZES["caller"] + SIZES["other"]))


def test_the_first_estimate_waits_only_for_a_limited_time(told, monkeypatch):
    monkeypatch.setattr(compiling, "_PATIENCE", 2.0)
    told.begin("caller")
    told.clock.now += 2.5
    told.begin("leaf")
    assert told.reports[-1].has_grown
    assert told.reports[-1].seconds_left == pytest.approx(sum(SIZES.values()) * compiling.SECONDS_PER_INSTRUCTION)


def test_a_function_that_is_compiled_for_other_types_is_announced_again(told):
    for _ in range(2):
        told.begin("other")
        told.end("other")
    assert [report.has_grown for report in told.reports] == [True, False, True, False]


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("/env/memdiag/trace/__pycache__", "once per installation"),
        (
            "{temporary}/trace",
            (
                "the compiled code is kept in {temporary}, because memdiag can write neither to its own folder nor to "
                "the user's cache"
            ),
        ),
        (None, "in every run, because memdiag can write neither to its own folder nor to a cache folder"),
    ],
)
def test_the_command_announces_how_long_and_how_often_it_compiles(monkeypatch, capsys, folder, said):
    temporary = str(temporary_folder())
    kept = Cold("caller")
    kept.folder = folder and Path(folder.format(temporary=temporary))
    tells = []
    monkeypatch.setattr(compiled, "KEPT", [kept])
    monkeypatch.setattr(compiling, "watch", lambda tell: tells.append(tell) or (lambda: None))
    loading.announce_compiling()
    tells[0](compiling.Compilation(0.0, 1.2, has_grown=True, purpose="read traces"))  # too short to be announced
    tells[0](compiling.Compilation(0.1, 38.6, has_grown=True, purpose="read traces"))
    tells[0](compiling.Compilation(0.5, 19.0, has_grown=False, purpose="read traces"))
    tells[0](compiling.Compilation(0.6, 45.0, has_grown=True, purpose="read traces"))  # not much longer than announced
    assert (
        capsys.readouterr().err
        == f"compiling the code that reads traces: about 40 s, {said.format(temporary=temporary)}\n"
    )
    tells[0](compiling.Compilation(0.6, 90.0, has_grown=True, purpose="read traces"))
    assert "about 90 s" in capsys.readouterr().err


def _add_one(x):
    return x + 1


def test_numba_reports_what_it_compiles(monkeypatch):
    """The installed numba emits the events on which the estimate is based."""
    if compiled.numba is None:
        pytest.skip("needs numba")
    reports = []
    monkeypatch.setattr(compiling, "_PATIENCE", 0.0)
    monkeypatch.setattr(compiled, "_cached", lambda *_: None)  # never loads cached code
    monkeypatch.setattr(compiled, "KEPT", [])
    stop = compiling.watch(reports.append)
    try:
        assert compiled.njit(_add_one)(1) == 2
    finally:
        stop()
    assert [report.has_grown for report in reports] == [True, False]
    assert reports[-1].share < 1 or reports[-1].seconds_left == 0
