"""Every row of the table of snapshot fields is read, kept, written back, redacted and shown as described."""

from __future__ import annotations

import csv
import pickle

import pytest

import memdiag
from memdiag.cli.main import main
from memdiag.exports import csv_tables
from memdiag.exports.model import Wanted
from memdiag.sources.redacted_file import redact_content
from memdiag.trace import schema, snapshot_fields
from memdiag.trace.schema import BLOCK, ENTRY, FIELDS, FLAG, IGNORED, NUMBER, SEGMENT, TEXT, WORD, Field
from memdiag.trace.snapshot_fields import MORE_COLUMNS, TEXT_COLUMNS, columns_of, ignored_of
from memdiag.tui.lists import TENSORS, Lists
from memdiag.tui.walk import Walk

MARKED = "step 3 of /home/somebody/run"


def snapshot(path, unusual):
    frames = [{"name": "f", "filename": "/x/train.py", "line": 1}]
    plain = {"stream": 0, "frames": frames, "compile_context": "N/A", "time_us": 5}
    entries = [
        {"action": "segment_alloc", "addr": 1 << 30, "size": 2 << 20, "user_metadata": "", **plain},
        {"action": "alloc", "addr": 1 << 30, "size": 512, "user_metadata": MARKED, **plain},
        {"action": "alloc", "addr": (1 << 30) + 512, "size": 512, "user_metadata": "other", **plain},
        {"action": "alloc", "addr": (1 << 30) + 1024, "size": 512, **plain},
    ]
    again = entries[2]  # an entry that is referenced twice does not become a row
    content = {
        "segments": [],
        "device_traces": [entries],
        **({"memdiag": {"again": [again]}} if unusual else {}),
    }
    path.write_bytes(pickle.dumps(content))
    return path


@pytest.mark.parametrize("unusual", [False, True])
def test_metadata_of_entries_is_read(tmp_path, unusual):
    trace = memdiag.load(snapshot(tmp_path / "x.pickle", unusual))
    said = trace.devices[0].events.user_metadata.tolist()
    assert [trace.strings[row] if row >= 0 else None for row in said] == [None, MARKED, "other", None]
    unknown = [str(note.text) for note in trace.notes if note.code == "MD903"]
    assert unknown == ["unknown keys of the recording, ignored: 'again'"] * unusual


def test_metadata_is_exported_and_written_back(tmp_path):
    path = snapshot(tmp_path / "x.pickle", unusual=False)
    (events,) = csv_tables.write(memdiag.load(path), tmp_path / "t.csv", Wanted(tables=("events",)))
    with events.open(newline="") as file:
        assert [row["user_metadata"] for row in csv.DictReader(file)] == ["", MARKED, "other", ""]
    assert main(["export", str(path), "--format", "snapshot", "-o", str(tmp_path / "y.pickle")]) == 0
    (written,) = pickle.loads((tmp_path / "y.pickle").read_bytes())["device_traces"]
    assert [entry["user_metadata"] for entry in written] == ["", MARKED, "other", ""]


def test_the_viewer_shows_the_metadata_of_a_tensor(tmp_path):
    walk = Walk(memdiag.load(snapshot(tmp_path / "x.pickle", unusual=False)))
    walk.go(3)
    lines = Lists(walk).lines(TENSORS)
    shown = [lines.detail(row).plain for row in range(len(lines))]
    assert len(shown) == 3
    assert [MARKED in text for text in shown].count(True) == 1
    assert sum("metadata" in text for text in shown) == 2


def test_metadata_is_redacted(tmp_path):
    content = pickle.loads(snapshot(tmp_path / "x.pickle", unusual=False).read_bytes())
    redact_content(content)
    assert "somebody" not in str(content)
    assert [entry["action"] for entry in content["device_traces"][0]][:2] == ["segment_alloc", "alloc"]


def test_every_column_of_text_has_a_place_in_the_trace():
    assert set(TEXT_COLUMNS) <= set(MORE_COLUMNS) <= set(schema.EVENTS)
    assert len({(field.level, field.name) for field in FIELDS}) == len(FIELDS)
    assert all(field.column or field.kind == IGNORED for field in FIELDS if field.level == ENTRY)
    assert {"device", "version_counter"} <= ignored_of(ENTRY)


@pytest.fixture
def more_fields(monkeypatch):
    """Adds two fields of segments and one of blocks: one row each."""
    new = (
        Field("registration_counter", SEGMENT, NUMBER, "registration_counter", meaning="a new number"),
        Field("owner", BLOCK, TEXT, "owner", meaning="a new text"),
        Field("is_pinned", SEGMENT, FLAG, "is_pinned", meaning="a new truth value"),
    )
    monkeypatch.setattr(schema, "FIELDS", new)
    for level, table in ((SEGMENT, schema.SEGMENTS), (BLOCK, schema.BLOCKS)):
        for name, column in schema._with_columns_of_fields(level, {}).items():
            monkeypatch.setitem(table, name, column)
    monkeypatch.setattr(snapshot_fields, "FIELDS", (*FIELDS, *new))


@pytest.mark.usefixtures("more_fields")
def test_a_field_of_segments_and_blocks_is_a_row(tmp_path, goldens):
    content = pickle.loads((goldens / "cuda-2.13.0-train" / "snapshot.pickle").read_bytes())
    for number, segment in enumerate(content["segments"]):
        segment |= {"registration_counter": number + 7, "is_pinned": number % 2 == 0}
        for block in segment["blocks"]:
            block["owner"] = f"owner of {block['address']}"
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(content))
    trace = memdiag.load(path)
    assert not [note for note in trace.notes if note.code == "MD903"]
    assert main(["export", str(path), "--format", "snapshot", "-o", str(tmp_path / "y.pickle")]) == 0
    written = pickle.loads((tmp_path / "y.pickle").read_bytes())["segments"]
    asked = {each["address"]: each for each in content["segments"]}
    for segment in written:
        for name in ("registration_counter", "is_pinned", "segment_type", "segment_pool_id", "is_expandable"):
            assert segment[name] == asked[segment["address"]][name]
        owners = {block["address"]: block["owner"] for block in asked[segment["address"]]["blocks"]}
        assert {block["address"]: block["owner"] for block in segment["blocks"]}.items() <= owners.items()


def test_rows_have_the_keys_of_the_table():
    assert [field.name for field in FIELDS if field.level == SEGMENT and field.kind == WORD] == ["segment_type"]
    assert all(field.words for field in FIELDS if field.kind == WORD)
    for level, columns in ((SEGMENT, schema.SEGMENTS), (BLOCK, schema.BLOCKS)):
        stored = [name for field in FIELDS if field.level == level and field.column for name in columns_of(field)]
        assert sorted(stored) == sorted(set(columns) - {"segment"})


@pytest.mark.usefixtures("more_fields")
def test_a_number_that_a_snapshot_does_not_have_is_not_written(tmp_path, goldens):
    path = goldens / "cuda-2.13.0-train" / "snapshot.pickle"
    assert main(["export", str(path), "--format", "snapshot", "-o", str(tmp_path / "y.pickle")]) == 0
    written = pickle.loads((tmp_path / "y.pickle").read_bytes())["segments"]
    assert not [segment for segment in written if "registration_counter" in segment]
