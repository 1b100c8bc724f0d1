"""Runs a test on a simulated device, for ``@pytest.mark.memdiag(device="cuda:h100-80g")``.

A simulated device must exist before torch starts. So the process that runs pytest starts another pytest for this one
test, which has the device in its environment. That process creates the fixtures, records and judges the test, and
writes its reports to a file. Here, they replace the reports of the test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from memdiag.errors import MemdiagError
from memdiag.text import phrase

REPORTS = "MEMDIAG_TEST_REPORTS"  # file for the reports of the test; its presence marks the inner process
_TEST = "MEMDIAG_TEST_NAME"
_LAST_LINES = 20


def inner_test(environment: Mapping[str, str] = os.environ) -> str:
    """Returns the test that this process was started for, or "" in an ordinary run of pytest."""
    return environment.get(_TEST, "") if environment.get(REPORTS) else ""


class SimulatedTest:
    """A test that runs in a process of its own.

    Args:
        item: The test. Its fixtures are not created in this process.
        device: The simulated device, for example ``cuda:h100-80g``.
    """

    def __init__(self, item: pytest.Item, device: str) -> None:
        self.item = item
        self.device = device
        self.problem = ""
        self._reports: dict[str, Any] = {}
        # The inner process creates the fixtures and calls the test.
        item.setup = lambda: None  # type: ignore[method-assign]
        item.runtest = self._run  # type: ignore[method-assign]

    def report(self, when: str) -> pytest.TestReport | None:
        """Returns the report of the inner process on a phase, or None if the own report stands.

        An error in a fixture takes the place of the call, which did not happen.
        """
        test_report = self._reports.get(when)
        if test_report is None and when == "call" and not self._has_passed("setup"):
            test_report = self._reports["setup"]
        if test_report is None:
            return None
        made = self.item.config.hook.pytest_report_from_serializable(config=self.item.config, data=test_report)
        assert isinstance(made, pytest.TestReport)  # noqa: S101 - only such reports are written
        made.nodeid = self.item.nodeid
        return made

    def _run(self) -> None:
        """Runs the test; stores the reports, or why there are none."""
        try:
            environment = self._environment()
        except MemdiagError as error:
            self.problem = f"{error.message} ({error.hint})" if error.hint else error.message
            return
        with tempfile.TemporaryDirectory(prefix="memdiag-test-") as folder:
            reports, output = Path(folder, "reports.jsonl"), Path(folder, "output.txt")
            name = f"{self.item.path}::{self.item.nodeid.partition('::')[2]}"
            environment |= {REPORTS: str(reports), _TEST: name}
            with output.open("wb") as file:
                done = subprocess.run(  # noqa: S603 - the user's own pytest
                    [sys.executable, "-m", "pytest", *_arguments(self.item.config)],
                    cwd=self.item.config.invocation_params.dir,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
            self._reports = {test_report["when"]: test_report for test_report in _read(reports)}
            if "call" not in self._reports and self._has_passed("setup"):
                last = output.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
                said = phrase("check.marker.died", device=self.device, status=str(done.returncode))
                pytest.fail("\n".join([f"memdiag: {said}", *last]), pytrace=False)

    def _has_passed(self, when: str) -> bool:
        """Returns whether a phase has no report of an error or a skip."""
        return bool(self._reports.get(when, {}).get("outcome", "passed") == "passed")

    def _environment(self) -> dict[str, str]:
        from memdiag.phantom.launch import environment_for
        from memdiag.phantom.profiles import choose

        base = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        return environment_for(choose(self.device), [sys.executable, "-m", "pytest"], base)


def _arguments(config: pytest.Config) -> list[str]:
    """Returns the arguments of pytest; below pytest-xdist those of the process that distributes the tests."""
    above = getattr(config, "workerinput", {}).get("mainargv")
    given = list(above[1:] if above else config.invocation_params.args)
    return [*map(str, given), *(["-n0"] if config.pluginmanager.hasplugin("xdist") else [])]


def _read(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


class Reporter:
    """Writes the reports of the inner process. It selects the test instead of the files on the command line."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.path = Path(os.environ[REPORTS])
        config.args = [inner_test()]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Writes one report, at once: the test may end the process."""
        test_report = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(test_report) + "\n")
