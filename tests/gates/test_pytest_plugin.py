"""Tests of the pytest plugin in separate pytest processes.

Starting a process is slow, so each run checks several behaviours.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module

import pytest

from memdiag.gates.recorded_test import RecordedTest, write_entries

INI = """
[pytest]
addopts = --strict-markers --strict-config -p no:cacheprovider
filterwarnings = error
"""
TESTS = """
import pytest

torch = pytest.importorskip("torch")
MIB = 1 << 20


def keep(size):
    return torch.ones(size * MIB // 4)


@pytest.fixture
def model():
    return keep(20)


def test_without_a_marker():
    keep(1)


@pytest.mark.memdiag(peak="30MiB")
def test_within():
    keep(20)


@pytest.mark.memdiag(peak="30MiB")
def test_with_a_fixture(model):
    kept = keep(20)


@pytest.mark.memdiag(peak="10MiB", peak_allocated="1GiB")
def test_over():
    kept = [keep(4) for _ in range(3)]


@pytest.mark.memdiag(peek="1GiB")
def test_of_a_metric_that_is_none():
    pass


@pytest.mark.memdiag("1GiB")
def test_of_a_budget_without_a_name():
    pass


@pytest.mark.memdiag(peak="1GiB", ooms=0)
def test_of_what_the_cpu_does_not_tell():
    keep(1)


@pytest.mark.memdiag(peak="1GiB")
def test_that_allocates_nothing():
    pass


@pytest.mark.memdiag(peak="1GiB")
def test_that_fails_by_itself():
    keep(2)
    raise ValueError("its own")


@pytest.mark.memdiag(peak="1MiB")
@pytest.mark.skip(reason="not now")
def test_that_is_skipped():
    keep(2)


@pytest.mark.memdiag(peak="1MiB")
@pytest.mark.xfail(strict=True)
def test_that_is_expected_to_fail():
    raise ValueError


@pytest.mark.memdiag(peak="1MiB")
class TestOfAClass:
    def test_over_its_budget(self):
        keep(2)

    @pytest.mark.memdiag(peak="8MiB")
    def test_with_more(self):
        keep(2)

    @pytest.mark.memdiag(peak="8MiB")
    @pytest.mark.parametrize("name", ["../\\x1b[31m x", "b"])
    def test_by_name(self, name):
        keep(9 if name != "b" else 2)
"""


@pytest.fixture
def run(tmp_path):
    """Returns a function that runs pytest on a file and returns its exit code, each test's outcome and the output."""
    (tmp_path / "pytest.ini").write_text(INI)

    def start(tests, *options, **environment):
        (tmp_path / "test_it.py").write_text(tests)
        report = tmp_path / "report.json"
        (tmp_path / "conftest.py").write_text(
            "import json\n"
            "results = {}\n"
            "def pytest_runtest_logreport(report):\n"
            "    if report.when == 'call' or report.outcome != 'passed':\n"
            "        results[report.nodeid.partition('::')[2]] = [report.outcome, report.longreprtext or "
            "str(report.longrepr)]\n"
            "def pytest_unconfigure():\n"
            f"    with open({str(report)!r}, 'w') as file:\n"
            "        json.dump(results, file)\n"
        )
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", **environment}
        command = [sys.executable, "-m", "pytest", "-p", "memdiag.gates.pytest_plugin", *options]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert report.exists(), done.stdout + done.stderr
        return done.returncode, json.loads(report.read_text()), done.stdout + done.stderr

    return start


def test_marked_tests_are_recorded_judged_and_compared_with_a_baseline(run, tmp_path):
    pytest.importorskip("torch", reason="needs torch, which records")
    code, found, said = run(TESTS, "-vv", "--memdiag-baseline=base.json", "--memdiag-update")
    assert code == 1
    outcomes = {name: outcome for name, (outcome, _) in found.items()}
    names = [name for name in found if name.startswith("TestOfAClass::test_by_name")]
    assert outcomes == {
        "test_without_a_marker": "passed",
        "test_within": "passed",
        "test_with_a_fixture": "failed",
        "test_over": "failed",
        "test_of_a_metric_that_is_none": "failed",
        "test_of_a_budget_without_a_name": "failed",
        "test_of_what_the_cpu_does_not_tell": "failed",
        "test_that_allocates_nothing": "failed",
        "test_that_fails_by_itself": "failed",
        "test_that_is_skipped": "skipped",
        "test_that_is_expected_to_fail": "skipped",
        "TestOfAClass::test_over_its_budget": "failed",
        "TestOfAClass::test_with_more": "passed",
        names[0]: "failed",
        names[1]: "passed",
    }, said
    over = found["test_over"][1]
    assert over.startswith("memdiag: peak is 12.00 MiB: 2.00 MiB over the budget of 10.00 MiB\n")
    assert "    12.00 MiB tensors of test_it.py:9 keep (3 tensors)" in over
    assert "(3 tensors)" in over
    assert "peak is 40.00 MiB: 10.00 MiB over" in found["test_with_a_fixture"][1]
    assert "did you mean peak?" in found["test_of_a_metric_that_is_none"][1]
    assert "budgets need names" in found["test_of_a_budget_without_a_name"][1]
    assert (
        "ooms cannot be checked: the file does not show driver calls" in found["test_of_what_the_cpu_does_not_tell"][1]
    )
    assert "nothing was recorded: the test allocated nothing on" in found["test_that_allocates_nothing"][1]
    assert "ValueError: its own" in found["test_that_fails_by_itself"][1]
    assert "peak is 2.00 MiB, at most 1.00 GiB is allowed" in said, "its report has a section"

    kept = sorted(path.name for path in (tmp_path / "memdiag-tests").iterdir())
    assert len(kept) == 6, "of tests that failed or could not be judged, and were recorded"
    assert all(name.endswith(".pkl") and name.isascii() and "\x1b" not in name for name in kept)
    from memdiag.sources import load

    trace = load(next((tmp_path / "memdiag-tests").glob("test_it.py-test_over-*.pkl")))
    assert (trace.backend, trace.devices[0].usage.allocated.max()) == ("cpu", 12 << 20)

    assert "test_it.py::test_within: new" in said
    assert (
        json.loads((tmp_path / "base.json").read_text())["traces"]["test_it.py::test_within"]["metrics"][
            "peak_allocated"
        ]
        == 20 << 20
    )
    later = "# one line more\n" + TESTS.replace(
        'peak="30MiB")\ndef test_within():\n    keep(20)', 'peak="90MiB")\ndef test_within():\n    keep(25)'
    )
    later = later.replace(
        "def test_that_allocates_nothing():\n    pass", "def test_that_allocates_nothing():\n    keep(1)"
    )
    code, found, said = run(later, "--memdiag-baseline=base.json", "-k", "within or nothing")
    assert code == 1
    reason = found["test_within"][1]
    assert (
        "peak_allocated is 25.00 MiB, 5.00 MiB (+25.0%) more than in the baseline (20.00 MiB); 1% more is allowed"
        in reason
    )
    assert "+5.00 MiB tensors of test_it.py:10 keep (line 9 in the baseline) (1 tensor)" in reason
    assert "the trace is not in the baseline; --memdiag-update adds it" in found["test_that_allocates_nothing"][1]


def test_a_test_on_two_devices_has_one_baseline_entry_per_device(tmp_path, goldens):
    base, name = tmp_path / "base.json", "test_it.py::test_x"

    def judge(golden, *, updates):
        """Judges a test that recorded one of the goldens; returns its status and the names in the baseline."""
        recorded = RecordedTest(name, [], "")
        recorded._folder = tmp_path / "recording"
        recorded._folder.mkdir()
        shutil.copy(goldens / golden / "snapshot.pickle", recorded._folder / "trace.pkl")
        outcome = recorded.judge(base, (), None, has_failed=False, updates=updates)
        if updates:
            write_entries(base, {name: outcome.entries})
        return outcome.status, sorted(json.loads(base.read_text())["traces"])

    by_device = [f"{name}/device0", f"{name}/device1"]
    assert judge("cuda-2.13.0-two-devices", updates=True) == ("ok", by_device)
    assert judge("cuda-2.13.0-two-devices", updates=False) == ("ok", by_device)
    assert judge("cuda-2.13.0-leak", updates=False) == ("unknown", by_device)
    assert judge("cuda-2.13.0-leak", updates=True) == ("ok", [name])


def test_without_torch_marked_tests_fail_or_skip_with_the_reason(run, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    tests = (
        "import pytest, sys\n"
        "def test_unmarked():\n"
        "    assert not {'torch', 'numpy', 'numba', 'memdiag.gates.recorded_test', 'memdiag.compare'} & "
        "set(sys.modules)\n"
        "@pytest.mark.memdiag(peak='1GiB')\n"
        "def test_marked():\n"
        "    pass\n"
    )
    code, found, said = run(tests, PYTHONPATH=str(tmp_path))
    assert (code, found["test_unmarked"][0], found["test_marked"][0]) == (1, "passed", "failed"), said
    assert "memdiag: memdiag cannot record the test: ImportError: no torch here" in found["test_marked"][1]
    code, found, said = run(tests, "--memdiag-unable=skip", "-rs", PYTHONPATH=str(tmp_path))
    assert (code, found["test_marked"][0]) == (0, "skipped")
    assert "no torch here" in said


def test_a_failure_names_the_line_inside_a_library(run, tmp_path):
    pytest.importorskip("torch", reason="needs torch, which records")
    library = tmp_path / "site-packages" / "moe"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("import torch\n\n\ndef loss(size):\n    return torch.ones(size << 18)\n")
    tests = (
        "import pytest\n"
        "from moe import loss\n\n\n"
        "@pytest.mark.memdiag(peak='5MiB', backend='cpu')\n"
        "def test_loss():\n"
        "    kept = loss(8)\n"
    )
    code, found, said = run(tests, PYTHONPATH=os.pathsep.join([str(library.parent), os.environ.get("PYTHONPATH", "")]))
    assert (code, found["test_loss"][0]) == (1, "failed"), said
    assert (
        "    8.00 MiB tensors of test_it.py:7 test_loss (1 tensor)\n      in moe/__init__.py:5 loss\n"
        in found["test_loss"][1]
    )


def test_the_page_shows_how_a_test_over_its_budget_fails(run, root):
    pytest.importorskip("torch")
    page = (root / "docs" / "check.md").read_text(encoding="utf-8")
    (tests,) = re.findall(r"^```python\n(# test_it\.py\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^```text\n(___.*?)^```$", page, re.MULTILINE | re.DOTALL)
    code, found, said = run(tests)
    assert (code, found["test_it[5]"][0], found["test_it[30]"][0]) == (1, "passed", "failed"), said
    assert shown in said


def test_pytest_finds_the_plugin_by_its_entry_point(root):
    told = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    plugin = import_module(told["project"]["entry-points"]["pytest11"]["memdiag"])
    assert callable(plugin.pytest_runtest_makereport)
