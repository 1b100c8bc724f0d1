"""CSV and Parquet tables are equal, have exact numbers, and contain no text that a spreadsheet runs as a formula."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memdiag
from memdiag.exports import csv_tables, parquet
from memdiag.exports import tables as tables_module
from memdiag.exports.model import TABLES, Wanted
from memdiag.exports.tables import Tables, Text
from memdiag.trace import schema
from memdiag.trace.stacks import Frame, Stacks

GOLDENS = Path(__file__).parents[1] / "goldens"
CODED = {
    "category": schema.CATEGORIES,
    "lifetime": schema.LIFETIMES,
    "phase_alloc": schema.PHASES,
    "phase_free": schema.PHASES,
}


@pytest.fixture(scope="module")
def trace():
    return memdiag.load(GOLDENS / "cuda-2.13.0-two-devices" / "snapshot.pickle")


def rows_of(path):
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    assert text.count("\n") == text.count("\r\n")
    return list(csv.DictReader(text.splitlines(keepends=True)))


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(tables_module, "CHUNK", 100)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_csv_holds_every_row_exactly(trace, tmp_path, ending):
    files = csv_tables.write(trace, tmp_path / f"t{ending}", Wanted())
    assert [file.name for file in files] == [f"t-{table}{ending}" for table in TABLES]
    tensors, events, stacks = (rows_of(file) for file in files)
    frame = trace.tensors
    assert len(tensors) == trace.num_tensors
    for name in (
        "addr",
        "requested_bytes",
        "block_bytes",
        "alloc_at",
        "free_completed_at",
        "stack",
        "step_alloc",
        "device",
    ):
        assert [int(row[name]) for row in tensors] == frame[name].tolist()
    assert [int(row["lifetime_inferred"]) for row in tensors] == frame["lifetime_inferred"].tolist()
    for name, words in CODED.items():
        assert [row[name] for row in tensors] == [words[code] for code in frame[name].tolist()]
    assert len(events) == trace.num_events
    for name in ("reserved", "allocated", "active", "requested", "cache", "stranded", "foreign"):
        assert [int(row[name]) for row in events] == [
            value for device in trace.devices for value in device.usage[name].tolist()
        ]
    actions = [schema.ACTIONS[code] for device in trace.devices for code in device.events.action.tolist()]
    assert [row["action"] for row in events] == actions
    sites = [row["site"] for row in stacks]
    assert sites == [trace.stacks.label(stack) for stack in range(len(trace.stacks))]
    assert [row["site"] for row in tensors] == ["" if stack < 0 else sites[stack] for stack in frame["stack"].tolist()]


@pytest.mark.usefixtures("small_parts")
def test_parquet_read_back_is_the_frame(trace, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    pandas = pytest.importorskip("pandas")
    files = parquet.write(trace, tmp_path / "t.parquet", Wanted())
    tensors, events, _ = (pq.read_table(file).to_pandas() for file in files)
    wanted = trace.tensors.to_frame()
    for name in wanted:
        if name in CODED:
            assert tensors[name].astype(str).tolist() == [CODED[name][code] for code in wanted[name]]
        elif name not in {"name", "label"}:
            pandas.testing.assert_series_equal(tensors[name], wanted[name])
    for name in schema.USAGE:
        if name != "reference":
            assert events[name].tolist() == np.concatenate([device.usage[name] for device in trace.devices]).tolist()
    table = pq.read_table(files[0])
    assert str(table.schema.field("addr").type) == "int64"
    assert str(table.schema.field("category").type).startswith("dictionary")


def test_both_have_the_same_cells(trace, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    for table in TABLES:
        (text,) = csv_tables.write(trace, tmp_path / "t.csv", Wanted(tables=(table,), device=1))
        (binary,) = parquet.write(trace, tmp_path / "t.parquet", Wanted(tables=(table,), device=1))
        assert text == tmp_path / "t.csv"
        cells = [
            {name: str(int(value) if isinstance(value, bool) else value) for name, value in row.items()}
            for row in pq.read_table(binary).to_pylist()
        ]
        assert rows_of(text) == cells


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\N{FULLWIDTH EQUALS SIGN}"])
def test_no_cell_is_a_formula(trace, tmp_path, start):
    hostile = start + 'HYPERLINK("http://x","a")\r\n\t\x00\x1b\u202e"quoted",'
    stacks, _ = Stacks.from_lists([[Frame(hostile, 0, hostile)]])
    device = trace.devices[0]
    tensors = device.tensors.replace(
        name=np.zeros(len(device.tensors), np.int32), stack=np.zeros(len(device.tensors), np.int32)
    )
    changed = replace(trace, strings=(hostile,), stacks=stacks, devices=(replace(device, tensors=tensors),))
    tensor_file, stack_file = csv_tables.write(changed, tmp_path / "t.csv", Wanted(tables=("tensors", "stacks")))
    row, stack = rows_of(tensor_file)[0], rows_of(stack_file)[0]
    for cell in (row["name"], row["site"], stack["site"], stack["frames"]):
        assert cell.startswith("'" + start)
        assert cell.isprintable()
    assert '"quoted",' in row["name"]


def test_an_empty_trace_has_empty_tables(tmp_path):
    trace = memdiag.load(GOLDENS / "cuda-2.13.0-empty" / "snapshot.pickle")
    for file in csv_tables.write(trace, tmp_path / "folder", Wanted()):
        assert file.parent == tmp_path / "folder"
        assert rows_of(file) == []
        assert file.read_text().startswith(("device,tensor,", "device,event,", "stack,site,"))


def test_text_of_an_unknown_index_is_empty(trace):
    part = next(Tables(trace, Wanted()).parts("tensors"))
    name = part.columns["name"]
    assert isinstance(name, Text)
    assert name.words[-1] == ""
