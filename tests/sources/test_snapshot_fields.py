"""The table of snapshot fields: every row of it is read, kept, written back, redacted and shown as it says."""

from __future__ import annotations

import csv
import pickle

import pytest

import memdiag
from memdiag.cli.main import main
from memdiag.exports import csv_tables
from memdiag.exports.model import Wanted
from memdiag.sources.redacted_file import redact_content
from memdiag.trace import schema
from memdiag.trace.snapshot_fields import ENTRY, FIELDS, IGNORED, TEXT_COLUMNS, ignored_of
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
    again = entries[2]  # an entry that is referred to twice is no row
    content = {
        "segments": [],
        "device_traces": [entries],
        **({"allocator_settings": {"again": [again]}} if unusual else {}),
    }
    path.write_bytes(pickle.dumps(content))
    return path


@pytest.mark.parametrize("unusual", [False, True])
def test_metadata_of_entries_is_read(tmp_path, unusual):
    trace = memdiag.load(snapshot(tmp_path / "x.pickle", unusual))
    said = trace.devices[0].events.user_metadata.tolist()
    assert [trace.strings[row] if row >= 0 else None for row in said] == [None, MARKED, "other", None]
    assert not [note for note in trace.notes if note.code == "MD903"]


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
    assert set(TEXT_COLUMNS) <= set(schema.EVENTS)
    assert len({(field.level, field.name) for field in FIELDS}) == len(FIELDS)
    assert all(field.column or field.kind == IGNORED for field in FIELDS if field.level == ENTRY)
    assert "compile_context" in ignored_of(ENTRY)
