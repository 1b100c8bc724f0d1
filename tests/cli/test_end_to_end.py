"""``memdiag`` turns the snapshot in examples/ into reports, in a separate process if that matters."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import memdiag
from memdiag.cli.main import main
from tests.forking import memdiag_command

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "gpt-train.pickle"


def run(*arguments, **variables):
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "MEMDIAG_DEBUG"}
    }
    return subprocess.run(
        [*memdiag_command(), *map(str, arguments)],
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
    screen = run("analyze", EXAMPLE)
    assert len(screen.stdout.splitlines()) <= 45
    done = run("analyze", EXAMPLE, "--full")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert not {char for char in done.stdout if char != "\n" and not char.isprintable()}
    for section in (
        "Memory over the trace",
        "Memory use",
        "Use of the reserved memory",
        "Memory by category and call site",
        "Findings",
        "Next",
    ):
        assert section in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if "memdiag" not in line) <= 80


@pytest.mark.parametrize("at", ["0", "7040", "-1", "peak"])
@pytest.mark.parametrize("form", [[], ["--md"], ["--json"]])
def test_any_moment(at, form, capsys):
    assert main(["analyze", str(EXAMPLE), "--at", at, *form]) == 0
    assert capsys.readouterr().out


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
def test_what_cannot_be_done_is_said_in_two_lines(arguments, capsys, monkeypatch):
    monkeypatch.delenv("MEMDIAG_DEBUG", raising=False)
    trace = [] if len(arguments) == 1 else [EXAMPLE]
    assert main(["analyze", *map(str, (*trace, *arguments))]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.split(":")[0] for line in said.err.splitlines() if not line.startswith("building")] == [
        "error",
        "hint",
    ]
    assert "internal" not in said.err


def test_fail_on():
    code = memdiag.analyze(memdiag.load(EXAMPLE)).findings[-1].code
    done = run("analyze", EXAMPLE, "--fail-on", code)
    assert done.returncode == 1
    assert done.stderr.endswith(f"--fail-on: {code}\n")
    assert main(["analyze", str(EXAMPLE), "--fail-on", "MD999"]) == 0
