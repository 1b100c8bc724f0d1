"""``memdiag export`` selects the format by the file suffix, and reports the written files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memdiag.cli.main import main
from memdiag.registry import EXPORTS

GOLDENS = Path(__file__).parents[1] / "goldens"
OOM = GOLDENS / "cuda-2.13.0-oom" / "snapshot.pickle"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_format_says_its_endings():
    endings = [ending for export in EXPORTS.values() for ending in export.SUFFIXES]
    assert len(set(endings)) == len(endings)
    assert all(callable(export.write) for export in EXPORTS.values())


@pytest.mark.parametrize("ending", ["perfetto.json.gz", "trace.json", "speedscope.json", "pkl", "pickle.gz"])
def test_the_name_tells_the_format(ending, elsewhere, capsys):
    assert main(["export", str(OOM), "-o", f"t.{ending}", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["file"] for each in told["files"]] == [f"t.{ending}"]
    assert [path.name for path in elsewhere.iterdir()] == [f"t.{ending}"]
    assert told["files"][0]["bytes"] == (elsewhere / f"t.{ending}").stat().st_size


def test_tables_beside_each_other_or_in_a_folder(elsewhere, capsys):
    assert main(["export", str(OOM), "-f", "csv"]) == 0
    assert sorted(path.name for path in elsewhere.iterdir()) == [
        "snapshot-events.csv",
        "snapshot-stacks.csv",
        "snapshot-tensors.csv",
    ]
    assert main(["export", str(OOM), "-f", "csv", "-o", "folder", "--table", "tensors,events"]) == 0
    assert sorted(path.name for path in (elsewhere / "folder").iterdir()) == ["events.csv", "tensors.csv"]
    assert main(["export", str(OOM), "-o", "only.csv", "--table", "tensors"]) == 0
    assert (elsewhere / "only.csv").exists()
    assert "wrote only.csv" in capsys.readouterr().err


def test_a_default_name_beside_the_trace(elsewhere, capsys):
    trace = elsewhere / "t.pickle"
    trace.write_bytes(OOM.read_bytes())
    assert main(["export", "t.pickle", "-f", "perfetto"]) == 0
    assert (elsewhere / "t.perfetto.json.gz").exists()
    assert main(["export", "t.pickle", "-f", "snapshot"]) == 0
    assert (elsewhere / "t-exported.pickle").exists()
    assert trace.read_bytes() == OOM.read_bytes()
    assert main(["export", "t.pickle", "-o", "t.pickle"]) == 2
    assert "would overwrite the trace" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "the format of the export is missing"),
        (["-f", "parket"], "did you mean parquet"),
        (["-f", "chrome"], "did you mean perfetto"),
        (["-o", "t.xyz"], "does not know a format with this ending"),
        (["-f", "perfetto", "--table", "tensors"], "--table works with --format csv and parquet"),
        (["-f", "csv", "--table", "users"], "does not know this table"),
        (["-f", "csv", "--min-size", "1MiB"], "--min-size works with --format perfetto"),
        (["-f", "csv", "--device", "3"], "the trace does not contain device 3"),
        (["-o", "nowhere/t.pickle"], "cannot be written"),
    ],
)
def test_what_is_refused(options, said, capsys, elsewhere):
    assert main(["export", str(OOM), *options]) == 2
    assert said in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []


@pytest.mark.usefixtures("elsewhere")
def test_a_file_that_is_not_there_is_what_is_said_first(capsys):
    assert main(["export", "missing.pkl"]) == 2
    assert capsys.readouterr().err == "error: missing.pkl: no such file\nhint: check the path\n"
