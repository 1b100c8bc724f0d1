"""The options of ``memdiag analyze`` have the documented effects; the reports are invented."""

from __future__ import annotations

import json
import os
import re

import pytest

from memdiag.cli import analyze as command
from memdiag.cli.main import main
from memdiag.results.finding import Note
from memdiag.results.report import Report


@pytest.fixture
def asked(monkeypatch, samples):
    """Replaces the analysis by the sample report; returns its arguments."""
    calls = []

    def report(path, at, top, device, **_):
        calls.append((path, at, top, device))
        return None, samples.rich()

    monkeypatch.setattr(command, "_report", report)
    return calls


@pytest.mark.parametrize(
    ("at", "moment"),
    [
        ("peak", "peak"),
        ("OOM", "oom"),
        ("allocated", "allocated"),
        ("reserved", "reserved"),
        ("end", "end"),
        ("1204", 1204),
        ("1,204", 1204),
        ("1_204", 1204),
        ("0", 0),
        ("-1", -1),
    ],
)
def test_at(asked, at, moment):
    assert main(["analyze", "x.pkl", "--at", at]) == 0
    assert asked[0][1] == moment


@pytest.mark.parametrize("at", ["", "start", "-2", "1.5", "\uff19", "9" * 20])
def test_at_something_else(asked, at, capsys):
    assert main(["analyze", "x.pkl", "--at", at]) == 2
    assert capsys.readouterr().err.startswith(f"error: --at {at}: memdiag does not know this moment\nhint: ")
    assert not asked


def test_options_before_or_after_the_trace(asked):
    assert main(["analyze", "--top", "3", "--device", "1", "x.pkl"]) == 0
    assert main(["analyze", "x.pkl", "--top", "3", "--device", "1"]) == 0
    assert asked[0] == asked[1]
    assert asked[0][2:] == (3, 1)


@pytest.mark.usefixtures("asked")
def test_forms(capsys):
    main(["analyze", "x.pkl"])
    assert capsys.readouterr().out.startswith("CRITICAL")
    main(["analyze", "x.pkl", "--md"])
    assert capsys.readouterr().out.startswith("## memdiag")
    main(["analyze", "x.pkl", "--json"])
    assert json.loads(capsys.readouterr().out)
    assert main(["analyze", "x.pkl", "--json", "--md"]) == 2
    assert capsys.readouterr().err.startswith("error: give either --json or --md, not both")


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("name", "options", "start"),
    [("a.json", [], "{"), ("a.md", [], "## "), ("a.txt", [], "CRITICAL"), ("a.txt", ["--json"], "{")],
)
def test_output(tmp_path, capsys, monkeypatch, name, options, start):
    monkeypatch.setenv("FORCE_COLOR", "1")
    target = tmp_path / name
    assert main(["analyze", "x.pkl", "-o", str(target), *options]) == 0
    text = target.read_text(encoding="utf-8")
    assert text.startswith(start)
    assert "\x1b" not in text
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"wrote {target}\n"


@pytest.mark.usefixtures("asked")
def test_output_that_cannot_be_written(tmp_path, capsys):
    assert main(["analyze", "x.pkl", "-o", str(tmp_path / "no" / "such" / "a.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_the_trace_is_never_overwritten(asked, tmp_path, monkeypatch):
    trace = tmp_path / "trace.pkl"
    trace.write_bytes(b"trace")
    assert main(["analyze", str(trace), "-o", str(trace)]) == 2
    monkeypatch.chdir(tmp_path)
    assert main(["analyze", "-o", "trace.pkl"]) == 2
    assert trace.read_bytes() == b"trace"
    assert not asked


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 0, ""),
        (["--fail-on", "critical"], 1, "--fail-on: MD201\n"),
        (["--fail-on", "warning"], 1, "--fail-on: MD201, MD401\n"),
        (["--fail-on", "MD301"], 1, "--fail-on: MD301\n"),
        (["--fail-on", "md301,MD401"], 1, "--fail-on: MD401, MD301\n"),
        (["--fail-on", "MD999", "--fail-on", "MD402"], 0, ""),
        (["--fail-on", "MD902"], 1, "--fail-on: MD902\n"),
    ],
)
def test_fail_on(capsys, options, code, said):
    assert main(["analyze", "x.pkl", *options]) == code
    shown = capsys.readouterr()
    assert shown.out.startswith("CRITICAL")
    assert shown.err == said


@pytest.mark.parametrize("value", ["info", "MD20", "everything", ""])
def test_fail_on_something_else(asked, capsys, value):
    assert main(["analyze", "x.pkl", "--fail-on", value]) == 2
    assert "error: --fail-on" in capsys.readouterr().err
    assert not asked


def test_nothing_fails_on_a_clean_report(monkeypatch, samples):
    clean = Report(samples.source(), (samples.device(),), {}, (), (Note("MD902", "x"),))
    monkeypatch.setattr(command, "_report", lambda *_, **__: (None, clean))
    assert main(["analyze", "x.pkl", "--fail-on", "warning"]) == 0


# ------------------------------------------------------------------------------------------------ the chosen trace


def touch(path, when):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    os.utime(path, (when, when))


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        ({"trace.pkl": 1}, "trace.pkl"),
        ({"trace.pkl": 1, "memdiag-a/rank0.pkl": 2}, "memdiag-a/rank0.pkl"),
        ({"trace.pkl": 3, "memdiag-a/rank0.pkl": 2}, "trace.pkl"),
        (
            {"memdiag-a/rank0.pkl": 5, "memdiag-b/rank0.pkl": 4, "memdiag-b/rank10.pkl": 6, "memdiag-b/rank2.pkl": 6},
            "memdiag-b/rank0.pkl",
        ),
        ({"memdiag-a/rank3.pkl": 1, "memdiag-a/rank0.txt": 9, "other/rank0.pkl": 9}, "memdiag-a/rank3.pkl"),
    ],
)
def test_the_newest_run_here(asked, capsys, tmp_path, monkeypatch, files, chosen):
    for name, when in files.items():
        touch(tmp_path / name, when)
    monkeypatch.chdir(tmp_path)
    assert main(["analyze"]) == 0
    assert str(asked[0][0]) == chosen
    assert capsys.readouterr().err == f"reading {chosen}, the newest run in the current directory\n"


def test_no_run_here(asked, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["analyze"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: no trace was given")
    assert "memdiag record -- " in hint
    assert not asked


def test_a_run_directory(asked, capsys, tmp_path):
    touch(tmp_path / "memdiag-a" / "rank0.pkl", 1)
    assert main(["analyze", str(tmp_path / "memdiag-a")]) == 0
    assert capsys.readouterr().err == ""
    touch(tmp_path / "memdiag-a" / "rank1.pkl", 1)
    assert main(["analyze", str(tmp_path / "memdiag-a")]) == 0
    assert "the first of 2 ranks" in capsys.readouterr().err
    assert asked[0][0] == asked[1][0] == tmp_path / "memdiag-a" / "rank0.pkl"


def test_another_directory_is_left_to_the_sources(asked, tmp_path):
    main(["analyze", str(tmp_path)])
    assert asked[0][0] == tmp_path


# ------------------------------------------------------------------------------------------------ the terminal


@pytest.mark.usefixtures("asked")
def test_columns_set_the_width(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    main(["analyze", "x.pkl"])
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    main(["analyze", "x.pkl"])
    narrow = capsys.readouterr().out
    assert max(map(len, narrow.splitlines())) <= 80 < max(map(len, wide.splitlines())) <= 120


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("variables", "colored"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, False),
    ],
)
def test_colour(capsys, monkeypatch, variables, colored):
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    main(["analyze", "x.pkl"])
    assert bool(re.search(r"\x1b", capsys.readouterr().out)) == colored


def test_would_fit(root, capsys):
    trace = str(root / "tests/goldens/cuda-2.13.0-oom/snapshot.pickle")
    assert main(["analyze", trace, "--no-replay", "--would-fit", "13MiB"]) == 0
    assert capsys.readouterr().out.startswith(
        "Would a tensor of 13.00 MiB fit?\n  No: when memory ran out, 12.00 MiB would be missing"
    )


@pytest.mark.parametrize("size", ["0", "much", "-1", "99999999TiB"])
def test_would_fit_something_that_is_no_size(asked, capsys, size):
    assert main(["analyze", "x.pkl", f"--would-fit={size}"]) == 2
    assert "size" in capsys.readouterr().err
    assert not asked
