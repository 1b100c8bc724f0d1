"""A trace is written from Python as the command does it."""

from __future__ import annotations

from pathlib import Path

import pytest

import memdiag
from memdiag.errors import MemdiagError
from memdiag.exports.writing import destination, export, format_for, request


def test_a_format_is_chosen_by_the_longest_suffix_that_fits():
    assert format_for(None, Path("x.perfetto.json.gz")) == "perfetto"
    assert format_for("csv", Path("x.json")) == "csv"
    with pytest.raises(MemdiagError, match="chrome"):
        format_for("chrome", None)


def test_a_table_is_written_into_a_folder(goldens, tmp_path):
    trace = memdiag.load(goldens / "cuda-2.13.0-train" / "snapshot.pickle")
    file = destination("csv", Path(trace.path), tmp_path / "t.csv")
    written = export(trace, "csv", file, request("csv", tables=("tensors,stacks",)))
    assert len(written.files) == 2
    assert all(Path(each.file).stat().st_size == each.bytes > 0 for each in written.files)


def test_the_trace_itself_is_not_overwritten(tmp_path):
    path = tmp_path / "x.pickle"
    path.touch()
    with pytest.raises(MemdiagError):
        destination("snapshot", path, path)


def test_an_option_of_another_format_is_refused():
    with pytest.raises(MemdiagError, match="min-size"):
        request("csv", min_size="1MiB")
