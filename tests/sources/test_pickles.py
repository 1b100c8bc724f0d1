"""The pickle reader agrees with Python's own on any data, and its compiled loops agree with plain Python."""

from __future__ import annotations

import gzip
import pickle
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memdiag
from memdiag.errors import RefusedFile
from memdiag.sources.pickles import read_tape, tags
from memdiag.sources.pickles import tape as tape_module
from memdiag.sources.snapshot_entries import ENTRIES, stored_entries
from memdiag.trace import schema

numbers = st.integers(-(1 << 70), 1 << 70) | st.sampled_from(
    [0, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**59, 2**60, -(2**60), 2**63, 2**64]
)
atoms = st.none() | st.booleans() | numbers | st.floats(allow_nan=False) | st.text(max_size=20) | st.binary(max_size=20)
keys = st.text(max_size=8) | st.integers(-5, 5)
data = st.recursive(
    atoms,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(data, st.integers(3, 5))  # before protocol 3, a pickle creates bytes with a function call, which is refused
def test_it_reads_what_python_reads(value, protocol):
    tape = read_tape(pickle.dumps(value, protocol), "x")
    assert tape.python(tape.root) == value


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4),
    )
)
def test_text_protocols(value):
    tape = read_tape(pickle.dumps(value, 0), "x")
    assert tape.python(tape.root) == value


def test_shared_parts_and_long_lists():
    part = {"name": "x", "line": 3}
    value = [part] * 5000 + list(range(5000))
    tape = read_tape(pickle.dumps(value, 4), "x")
    assert tape.python(tape.root) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(junk):
    try:
        tape = read_tape(junk, "x")
        tape.python(tape.root)
    except (RefusedFile, ValueError):
        pass


@given(data, st.data())
def test_changed_bytes_are_read_or_refused(value, draw):
    raw = bytearray(pickle.dumps(value, draw.draw(st.integers(0, 5))))
    for _ in range(draw.draw(st.integers(1, 4))):
        raw[draw.draw(st.integers(0, len(raw) - 1))] = draw.draw(st.integers(0, 255))
    try:
        tape = read_tape(bytes(raw), "x")
        tape.python(tape.root)
    except (RefusedFile, ValueError):
        pass


def test_it_is_named_what_is_refused():
    with pytest.raises(RefusedFile, match="REDUCE"):
        read_tape(b"\x80\x04N)R.", "x")


@given(data, st.integers(3, 5), st.integers(0, 40))
def test_references_are_found_with_any_number_of_fixed_slots(value, protocol, direct):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tape_module.st, "_MEMO_DIRECT", direct)
        tape = read_tape(pickle.dumps([value, value, [value]], protocol), "x")
    assert tape.python(tape.root) == [value, value, [value]]


@given(data, st.integers(3, 5), st.integers(1, 40))
def test_a_file_is_read_in_pieces_of_any_size(value, protocol, piece):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "x.pkl"
        path.write_bytes(pickle.dumps(value, protocol))
        patch.setattr(tape_module, "_WHOLE", 0)
        patch.setattr(tape_module, "_PIECE", piece)
        tape = read_tape(path, "x")
    assert tape.python(tape.root) == value


@pytest.mark.parametrize("piece", [1, 5, 1 << 20])
def test_what_a_file_asks_for_is_named_wherever_a_piece_ends(tmp_path, monkeypatch, piece):
    path = tmp_path / "x.pkl"
    path.write_bytes(b"\x80\x04]" + b"N0" * 300 + b"cos\nsystem\n(S'true'\ntR.")
    monkeypatch.setattr(tape_module, "_WHOLE", 0)
    monkeypatch.setattr(tape_module, "_PIECE", piece)
    with pytest.raises(RefusedFile, match=r"GLOBAL os\.system at byte 603"):
        read_tape(path, "x")


def test_lists_that_begin_alike_stay_apart_when_they_grow():
    # [a, b], [a, b], then one more item for each of the two; Python's picklers never write this
    first = b"](K\x01K\x02e"
    tape = read_tape(b"\x80\x02](" + first + b"K\x03a" + first + first + b"K\x04ae.", "x")
    assert tape.python(tape.root) == [[1, 2, 3], [1, 2], [1, 2, 4]]


def test_equal_strings_pairs_and_lists_are_kept_once():
    value = [[f"{i % 3}", (i % 3, 7), [i % 3, 8, 9]] for i in range(100)]
    tape = read_tape(pickle.dumps(value), "x")
    assert tape.python(tape.root) == value
    assert len(tape.string_at) == 3


def test_dicts_that_stay_empty_are_empty():
    value = [{}, (1, 2, 3, 4), {}, [5, 6], ({}, {}), {"a": {}}]
    tape = read_tape(pickle.dumps(value), "x")
    assert tape.python(tape.root) == value
    shared = {}
    tape = read_tape(pickle.dumps([shared, shared]), "x")
    assert tape.python(tape.root) == [{}, {}]


def entry(number, **more):
    return {
        "action": "alloc",
        "addr": number,
        "size": 512,
        "stream": 0,
        "time_us": 7,
        "frames": [],
        "pool_id": (0, 1),
    } | more


@pytest.mark.parametrize("protocol", range(6))
def test_entries_are_rows_unless_they_are_unusual(protocol):
    again = entry(3)
    listed = [
        entry(1),
        entry(2, size=2**70),
        again,
        again,
        entry(4, action="melted"),
        entry(5, note="x"),
        entry(6, pool_id=None),
    ]
    content = {"segments": [], "device_traces": [listed]}
    tape = read_tape(pickle.dumps(content, protocol), "x", ENTRIES)
    (values,) = [tape.list_items(int(each)) for each in tape.list_items(tape.get(tape.root, "device_traces"))]
    stored = (values & 7 == tags.CONST) & (values >> 3 >= tags.ROW_0)
    assert stored.tolist() == ([True, False, False, False, False, True, True] if protocol else [False] * 7)
    if protocol:
        found = stored_entries(tape.entries, (values[stored] >> 3) - tags.ROW_0)
        assert found.numbers["addr"].tolist() == [1, 5, 6]
        assert found.pools.tolist() == [[0, 1], [0, 1], [-1, -1]]


def test_a_trace_with_unusual_entries_keeps_its_order(tmp_path):
    again = entry(3)
    plain = [entry(1), entry(2), again, entry(2, action="free_completed"), again, entry(9, action="melted"), entry(4)]
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [plain]}))
    events = memdiag.load(path).devices[0].events
    assert events.addr.tolist() == [1, 2, 3, 2, 3, 9, 4]
    assert events.action.tolist() == [0, 0, 0, 2, 0, schema.UNKNOWN, 0]


def test_the_entries_of_one_device_need_no_list_around_them(tmp_path):
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [entry(1), entry(2)]}))
    assert memdiag.load(path).devices[0].events.addr.tolist() == [1, 2]


@pytest.mark.parametrize("later", [[list(range(60_000))], [[]] * 3, "x" * 100_000])
def test_a_file_that_changes_between_the_two_runs_is_refused(tmp_path, monkeypatch, later):
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps([1, 2, 3]))
    allocate = tape_module.st.allocate

    def allocate_and_change(counts, *others):
        if counts.any():
            path.write_bytes(pickle.dumps(later))
        return allocate(counts, *others)

    monkeypatch.setattr(tape_module, "_WHOLE", 0)
    monkeypatch.setattr(tape_module.st, "allocate", allocate_and_change)
    with pytest.raises(RefusedFile, match="changed while"):
        read_tape(path, "x")


SNAPSHOT = pickle.dumps({"segments": [], "device_traces": [[entry(1), entry(2)]]})
EXECUTES = b"\x80\x04cos\nabort\n)R."


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (SNAPSHOT, f"1 more pickle after the first one ({len(SNAPSHOT)} B)"),
        (pickle.dumps(1) + SNAPSHOT, "2 more pickles after the first one"),
        (EXECUTES, "1 more pickle"),
        (SNAPSHOT[:100], "1 more pickle"),
        (b"text", "other data after the pickle (4 B)"),
    ],
)
@pytest.mark.parametrize("form", ["plain", "large", "gzip"])
def test_pickles_after_the_first_are_named_and_not_executed(tmp_path, monkeypatch, rest, said, form):
    if form == "large":
        monkeypatch.setattr(tape_module, "_WHOLE", 0)
        monkeypatch.setattr(tape_module, "_PIECE", 64)
    path = tmp_path / "x.pickle"
    path.write_bytes(gzip.compress(SNAPSHOT + rest) if form == "gzip" else SNAPSHOT + rest)
    trace = memdiag.load(path)
    assert trace.devices[0].events.addr.tolist() == [1, 2]
    (note,) = [note.text for note in trace.notes if note.code == "MD916"]
    assert said in note


def test_the_command_copies_the_largest_further_pickle(tmp_path):
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps({"lr": 1}) + SNAPSHOT + pickle.dumps([1]))
    with pytest.raises(RefusedFile) as refused:
        memdiag.load(path)
    command = refused.value.hint.split("run ")[1].split("; ")[0]
    assert "2 more follow" in refused.value.hint
    start, length = (int(word) for word in re.findall(r"-c \+?([0-9]+)", command))
    assert path.read_bytes()[start - 1 :][:length] == SNAPSHOT


def test_bytes_that_fill_up_a_file_are_no_data(tmp_path):
    path = tmp_path / "x.pickle"
    path.write_bytes(SNAPSHOT + b"\0" * 100 + b"\n")
    assert not [note for note in memdiag.load(path).notes if note.code == "MD916"]
