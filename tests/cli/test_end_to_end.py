"""The whole path on the snapshot that ships in examples/: file in, report out, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import memdiag

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "gpt-train.pickle"


def run(*arguments, **variables):
    environment = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "MEMDIAG_DEBUG"}}
    return subprocess.run(
        [sys.executable, "-m", "memdiag", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**environment, "PYTHONUTF8": "1", **variables},
        cwd=ROOT,
    )


def test_the_api_and_the_command_say_the_same():
    trace = memdiag.load(EXAMPLE)
    report = memdiag.analyze(trace)
    assert isinstance(trace, memdiag.Trace)
    assert isinstance(report, memdiag.Report)
    done = run("analyze", EXAMPLE, "--json")
    assert done.returncode == 0
    shown = json.loads(done.stdout)
    assert shown["source"]["num_events"] == trace.num_events
    assert shown["devices"][0]["peak"]["reserved_bytes"] == report.devices[0].peak.reserved_bytes
    assert [f["code"] for f in shown["findings"]] == [f.code for f in report.findings]
    assert type(shown["devices"][0]["end"]["allocated_bytes"]) is int


def test_the_terminal_report():
    done = run("analyze", EXAMPLE)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert not {char for char in done.stdout if char != "\n" and not char.isprintable()}
    for section in ("Memory over the trace", "How much", "Where the reserved bytes are", "Who holds memory", "Findings", "Next"):
        assert section in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if "memdiag" not in line) <= 80


@pytest.mark.parametrize("at", ["0", "7040", "-1", "peak"])
@pytest.mark.parametrize("form", [[], ["--md"], ["--json"]])
def test_any_moment(at, form):
    assert run("analyze", EXAMPLE, "--at", at, *form).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--at", "oom"],
        ["--at", "9999999"],
        ["--device", "7"],
        ["no-such-file"],
        [ROOT / "examples"],
        [ROOT / "README.md"],
        ["/dev/null"],
        ["x" * 5000],
    ],
)
def test_what_cannot_be_done_is_said_in_two_lines(arguments):
    trace = [] if len(arguments) == 1 else [EXAMPLE]
    done = run("analyze", *trace, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert [line.split(":")[0] for line in done.stderr.splitlines() if not line.startswith("building")] == ["error", "hint"]
    assert "internal" not in done.stderr


def test_fail_on():
    code = memdiag.analyze(memdiag.load(EXAMPLE)).findings[-1].code
    done = run("analyze", EXAMPLE, "--fail-on", code)
    assert done.returncode == 1
    assert done.stderr.endswith(f"--fail-on: {code}\n")
    assert run("analyze", EXAMPLE, "--fail-on", "MD999").returncode == 0
