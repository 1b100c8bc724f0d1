"""Columns of numbers as text are unpacked unchanged; a hostile column is refused before it fills the memory."""

from __future__ import annotations

import base64
import zlib
from array import array

import pytest

from memdiag.recorder import columns
from memdiag.recorder.columns import Unpacker, pack

EXTREMES = array("q", [0, -1, (1 << 63) - 1, -(1 << 63), 256, 1_700_000_000_000_000_000])


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    "column", [array("q"), EXTREMES, array("q", [-1]) * 100_000], ids=["empty", "extremes", "long"]
)
def test_a_column_is_unpacked_unchanged(column):
    text = pack(column)
    assert isinstance(text, str)
    assert array("q", Unpacker([text]).unpack(text)) == column


def test_bytes_of_older_recordings_are_returned_unchanged():
    data = EXTREMES.tobytes()
    assert Unpacker([data]).unpack(data) == data


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        7,
        [1, 2],
        b"1234567",
        "",
        "no base64!",
        text_of(b"no zlib"),
        text_of(zlib.compress(b"1234567")),
        text_of(zlib.compress(EXTREMES.tobytes())[:-5]),
        text_of(zlib.compress(EXTREMES.tobytes()) + b"more"),
    ],
)
def test_a_damaged_column_is_refused(damaged):
    with pytest.raises(ValueError, match=r"."):
        Unpacker([damaged]).unpack(damaged)


def test_columns_that_unpack_to_too_many_bytes_are_refused(monkeypatch):
    monkeypatch.setattr(columns, "_FLOOR", 1 << 20)
    bomb = pack(array("q", bytes(1 << 24)))
    with pytest.raises(ValueError, match="memory bomb"):
        Unpacker([bomb]).unpack(bomb)
    together = [pack(array("q", bytes(3 << 18)))] * 3
    unpacker = Unpacker(together)
    for column in together[:2]:  # together below the limit: 1 MiB plus 40 bytes for each byte of text
        unpacker.unpack(column)
    with pytest.raises(ValueError, match="memory bomb"):
        unpacker.unpack(together[2])
