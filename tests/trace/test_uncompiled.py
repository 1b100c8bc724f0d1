"""Uncompiled code gives bitwise the same results as compiled code."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.allocator.policies.__init__ import POLICIES
from memdiag.cli.main import main
from memdiag.errors import RefusedFile
from memdiag.sources import load
from memdiag.sources.pickles import read_tape
from memdiag.trace import compiled, uncompiled
from tests.trace.test_without_numba import digest

data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=8) | st.tuples(inner, inner)
    ),
    max_leaves=20,
)


@pytest.fixture
def plain(monkeypatch):
    """Returns a function that runs another one without compiled code."""

    def run(call):
        with monkeypatch.context() as patch:
            patch.setattr(compiled, "is_compiling", lambda: False)
            return call()

    return run


def read(raw):
    """Returns the content of a pickle as text, or the error that refuses it."""
    try:
        tape = read_tape(raw, "x")
        return repr(tape.python(tape.root))
    except (RefusedFile, ValueError) as error:
        return f"{type(error).__name__}: {error}"


@given(data, st.integers(0, 5), st.data())
def test_pickles_are_read_the_same(value, protocol, draw):
    """Pickles are read the same, damaged ones included."""
    raw = bytearray(pickle.dumps(value, protocol))
    for _ in range(draw.draw(st.integers(0, 4))):
        raw[draw.draw(st.integers(0, len(raw) - 1))] = draw.draw(st.integers(0, 255))
    expected = read(bytes(raw))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "is_compiling", lambda: False)
        assert read(bytes(raw)) == expected


@pytest.mark.parametrize(
    "number",
    [b"\x8a\x08" + b"\xff" * 8, b"\x8a\x08" + b"\0" * 7 + b"\x80", b"G\xc0" + b"\0" * 7, b"G" + b"\xff" * 8],
)
def test_long_integers_and_negative_floats_are_read_the_same(plain, number):
    """Numbers that fill all 8 bytes of an int64 are read the same."""
    raw = b"\x80\x04" + number + b"."
    assert plain(lambda: read(raw)) == read(raw)


@pytest.mark.parametrize(
    "name",
    [
        "cpu-2.13.0-recorded",
        "cuda-2.11.0-train",
        "cuda-2.11.0-oom",
        "cuda-2.13.0-expandable",
        "cuda-2.13.0-ring",
        "cuda-2.13.0-ring-mid-malloc",
        "cuda-2.13.0-state-only",
        "cuda-2.15.0-expandable",
        "npu-2.13.0-workspace",
    ],
)
def test_traces_are_built_the_same(goldens, plain, name):
    path = goldens / name / "snapshot.pickle"
    assert plain(lambda: digest(load(path))) == digest(load(path))


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_are_simulated_the_same(goldens, plain, capsys, policy):
    name = "npu-2.13.0-train" if policy.startswith("npu") else "cuda-2.13.0-recorded"
    arguments = ["simulate", str(goldens / name / "snapshot.pickle"), "--policy", policy, "--json"]

    def simulated():
        assert main(arguments) == 0
        return json.loads(capsys.readouterr().out)

    assert plain(simulated) == simulated()


PAIR = np.dtype([("first", np.int64), ("second", np.int64)])
SHARED = np.dtype({"names": ["one", "other"], "formats": [np.int64] * 2, "offsets": [8, 8], "itemsize": 16})


def test_records_are_written_back():
    records, single, column = np.zeros(3, PAIR), np.zeros(1, PAIR)[0], np.zeros(2, np.int64)

    def change(records, single, column):
        records[1].second = records[2].first + 7
        records[-1].first = len(records)
        single.first = 5
        column[1] = records[1].second

    uncompiled.run(change, (records, single, column), makes_arrays=False)
    assert records.tolist() == [(0, 0), (0, 7), (3, 0)]
    assert single.tolist() == (5, 0)
    assert column.tolist() == [0, 7]


def test_records_are_written_back_after_an_error():
    records = np.zeros(2, PAIR)

    def change(records):
        records[1].first = 4
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        uncompiled.run(change, (records,), makes_arrays=False)
    assert records["first"].tolist() == [0, 4]


def test_fields_at_the_same_offset_share_their_value():
    records = np.zeros(1, SHARED)

    def change(records):
        records[0].one = 6
        return records[0].other

    assert uncompiled.run(change, (records,), makes_arrays=False) == 6
    assert records[0]["other"] == 6
