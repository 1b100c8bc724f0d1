"""The reader of pickles beside Python's own, on data of every shape; and the compiled loops beside the plain Python they are."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.errors import RefusedFile
from memdiag.sources.pickles import read_tape

numbers = st.integers(-(1 << 70), 1 << 70) | st.sampled_from(
    [0, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**59, 2**60, -(2**60), 2**63, 2**64]
)
atoms = st.none() | st.booleans() | numbers | st.floats(allow_nan=False) | st.text(max_size=20) | st.binary(max_size=20)
keys = st.text(max_size=8) | st.integers(-5, 5)
data = st.recursive(
    atoms, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | st.tuples(inner, inner), max_leaves=20
)


@given(data, st.integers(3, 5))  # before 3, bytes are made by calling a function: refused
def test_it_reads_what_python_reads(value, protocol):
    tape = read_tape(pickle.dumps(value, protocol), "x")
    assert tape.python(tape.root) == value


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=20), lambda inner: st.lists(inner, max_size=4)
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
