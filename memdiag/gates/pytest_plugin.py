"""The pytest plugin: ``@pytest.mark.memdiag(peak="2GiB")`` records a test, and fails it if it needs more memory.

With ``device="cuda:h100-80g"``, the test runs on a simulated device, in a process of its own (simulated_test.py).

It is loaded into every pytest run in an environment with memdiag. So it imports only pytest until a test has the
marker, and its errors are reported as the result of that test, never as errors of the run.

A test is recorded from before its fixtures are created to the end of its call. It is judged when pytest creates its
report, instead of raising an exception in the test. So the report has the words of ``memdiag check``, without a
traceback through this file.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from memdiag.gates.recorded_test import RecordedResult, RecordedTest
    from memdiag.gates.simulated_test import SimulatedTest

_MARKER = (
    "memdiag(peak='2GiB', stranded='5%', ooms=0, …, device='cuda:h100-80g', baseline='memory.json'): record the memory "
    "of this test, and fail the test if it exceeds a limit; metrics as in memdiag check; device names a simulated one"
)
_INNER = "MEMDIAG_TEST_REPORTS"  # set in a process that runs one test on a simulated device
# On a report, possibly from another process: the baseline file of a test (None: that of the command line), and its
# entries.
_CARRIED = "memdiag_entries"


class State:
    """State of one pytest run: the baseline, and the measurements."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.running: dict[str, RecordedTest] = {}
        self.simulated: dict[str, SimulatedTest] = {}
        self.measured: dict[Path, dict[str, dict[str, dict[str, Any]]]] = {}  # by baseline file and test
        self.said: list[str] = []

    def path(self, option: str) -> Path | None:
        """Returns a file or folder of the command line, relative to the folder in which pytest was started."""
        given = self.config.getoption(option)
        return Path(self.config.invocation_params.dir, given) if given else None


_STATE = pytest.StashKey[State]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("memdiag", "memory of tests that are marked with @pytest.mark.memdiag")
    group.addoption(
        "--memdiag-dir",
        metavar="DIR",
        default="memdiag-tests",
        help="directory for the traces of tests that fail (default: memdiag-tests)",
    )
    group.addoption(
        "--memdiag-baseline",
        metavar="FILE",
        help="also compare marked tests with this baseline file (memdiag explain check)",
    )
    group.addoption("--memdiag-update", action="store_true", help="write new baseline values for the tests that run")
    group.addoption(
        "--memdiag-tolerance",
        action="append",
        metavar="2%|NAME=VALUE",
        help="allowed increase over the baseline (default: 1%%)",
    )
    group.addoption(
        "--memdiag-unable",
        choices=("fail", "skip"),
        default="fail",
        help="result of a marked test whose memory cannot be checked (default: fail)",
    )
    group.addoption("--no-memdiag", action="store_true", help="do not record the memory of marked tests")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker, and the parts of the plugin that this run needs."""
    config.addinivalue_line("markers", _MARKER)
    config.stash[_STATE] = State(config)
    if _INNER in os.environ:
        from memdiag.gates.simulated_test import Reporter

        config.pluginmanager.register(Reporter(config), "memdiag-reporter")
    elif config.getoption("--memdiag-update"):
        config.pluginmanager.register(MeasurementCollector(config.stash[_STATE]), "memdiag-collector")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Checks that there is a baseline to update.

    Raises:
        pytest.UsageError: ``--memdiag-update`` without a baseline.
    """
    config = session.config
    if not config.getoption("--memdiag-update") or config.getoption("--memdiag-baseline") or _INNER in os.environ:
        return
    if not any("baseline" in marker.kwargs for item in session.items for marker in item.iter_markers("memdiag")):
        raise pytest.UsageError("--memdiag-update needs a baseline file: add --memdiag-baseline FILE")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Starts to record a marked test, before its fixtures are created."""
    if item.get_closest_marker("memdiag") is None or item.config.getoption("--no-memdiag"):
        return
    from memdiag.gates.recorded_test import RecordedTest

    wanted: dict[str, Any] = {}
    positional = ()
    for marker in reversed(list(item.iter_markers("memdiag"))):  # those of the class and module first
        wanted |= marker.kwargs
        positional += marker.args
    state = item.config.stash[_STATE]
    device = str(wanted.get("device") or "")
    if ":" in device and "backend" not in wanted and _INNER not in os.environ:
        from memdiag.gates.simulated_test import SimulatedTest

        state.simulated[item.nodeid] = SimulatedTest(item, device)
    else:
        state.running[item.nodeid] = RecordedTest.begin(item.nodeid, wanted, positional, item.path.parent)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Ends the recording after the call of the test (or a failed setup), and judges the test if it passed."""
    outcome = yield
    state = item.config.stash.get(_STATE, None)
    if state is not None and item.nodeid in state.simulated:
        _replace(outcome, state.simulated[item.nodeid], call, skips=item.config.getoption("--memdiag-unable") == "skip")
        return
    running = state.running.pop(item.nodeid, None) if state is not None and state.running and _is_over(call) else None
    if running is None or state is None:
        return
    running.end()
    report: pytest.TestReport = outcome.get_result()
    if call.when != "call" or report.outcome == "skipped":
        running.discard()
        return
    baseline = running.baseline or state.path("--memdiag-baseline")
    judged = running.judge(
        baseline,
        item.config.getoption("--memdiag-tolerance") or [],
        state.path("--memdiag-dir"),
        has_failed=report.failed,
        updates=bool(item.config.getoption("--memdiag-update")),
    )
    if judged.entries is not None and baseline is not None:
        setattr(report, _CARRIED, [str(baseline), judged.entries])
    _report(report, judged, skips=item.config.getoption("--memdiag-unable") == "skip")


def _replace(outcome: Any, test: SimulatedTest, call: pytest.CallInfo[None], *, skips: bool) -> None:
    """Replaces the report of a test by that of the process in which it ran."""
    if call.when == "call" and test.problem:
        from memdiag.gates.recorded_test import RecordedResult

        _report(outcome.get_result(), RecordedResult("unknown", f"memdiag: {test.problem}"), skips=skips)
    elif (made := test.report(call.when)) is not None and call.when != "setup":
        outcome.force_result(made)


def _is_over(call: pytest.CallInfo[None]) -> bool:
    return call.when != "setup" or call.excinfo is not None


def _report(report: pytest.TestReport, judged: RecordedResult, *, skips: bool) -> None:
    """Adds the judgement to the report of a test."""
    if report.failed:
        report.sections.append(("memdiag", judged.text))
    elif judged.status == "failed" or (judged.status == "unknown" and not skips):
        report.outcome = "failed"
        report.longrepr = judged.text
    elif judged.status == "unknown":
        path, line, _ = report.location
        report.outcome = "skipped"
        report.longrepr = (path, line or 0, f"Skipped: {judged.text.splitlines()[0]}")


class MeasurementCollector:
    """Collects measurements, also from other processes (pytest-xdist)."""

    def __init__(self, state: State) -> None:
        self.state = state

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Stores the baseline entries of a test."""
        carried = getattr(report, _CARRIED, None)
        if carried is not None:
            baseline, entries = carried
            self.state.measured.setdefault(Path(baseline), {})[report.nodeid] = entries


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Ends recordings of an interrupted run; writes the baseline, in the process that has all results."""
    state = session.config.stash.get(_STATE, None)
    for running in list(state.running.values()) if state is not None else ():
        running.end()
        running.discard()
    if state is None or not session.config.getoption("--memdiag-update") or hasattr(session.config, "workerinput"):
        return
    if _INNER in os.environ:
        return
    from memdiag.errors import MemdiagError
    from memdiag.gates.recorded_test import write_entries

    if (chosen := state.path("--memdiag-baseline")) is not None:
        state.measured.setdefault(chosen, {})
    try:
        for baseline, measured in sorted(state.measured.items()):
            state.said += write_entries(baseline, measured)
    except MemdiagError as error:
        state.said += [f"error: {error.message}", f"hint: {error.hint}"]
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Prints the changes to the baseline."""
    state = config.stash.get(_STATE, None)
    if state is not None and state.said:
        terminalreporter.section("memdiag")
        for line in state.said:
            terminalreporter.line(line)
