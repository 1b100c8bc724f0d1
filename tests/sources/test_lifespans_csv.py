"""Lists of lifetimes are read with and without a header, and with half-open or closed intervals."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.errors import RefusedFile
from memdiag.sources import load
from memdiag.sources.lifespans_csv import read, sniff


def write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "id,lower,upper,size\na,0,3,4\nb,3,9,4\nc,0,9,2\n",
        "a,0,3,4\r\nb,3,9,4\r\nc,0,9,2\r\n",
        "id,start,end,size\na,0,2,4\nb,3,8,4\nc,0,8,2\n",
        "size,id,upper,lower\n4,a,3,0\n4,b,9,3\n2,c,9,0\n",
        'buffer,lower,upper,size,gaps\n"a, b",0,3,4,1-2\nb,3,9,4,\nc,0,9,2,\n\n',
    ],
)
def test_forms(tmp_path, text):
    trace = load(write(tmp_path / "x.csv", text))
    device = trace.devices[0]
    assert (trace.format, trace.backend, trace.complete_from_start) == ("lifespans-csv", None, True)
    assert device.usage.allocated.tolist() == [4, 6, 2, 6, 2, 0]
    assert device.usage.requested.tolist() == [4, 6, 2, 6, 2, 0]
    assert device.usage.reserved.max() == -1
    assert {note.code for note in trace.notes} == {"MD910", "MD911", "MD913"}


def test_gzip(tmp_path):
    file = tmp_path / "x.csv.gz"
    file.write_bytes(gzip.compress(b"id,lower,upper,size\na,0,3,4\n"))
    assert load(file).num_events == 2


def test_rows_that_cannot_be_are_counted(tmp_path):
    trace = read(
        write(tmp_path / "x.csv", "id,lower,upper,size\na,0,3,4\nb,5,3,4\nc,1,2,0\nd,1,2,-3\ne,1,2,9999999999999999\n")
    )
    assert trace.num_tensors == 1
    assert "4 rows" in next(note.text for note in trace.notes if note.code == "MD916")


def test_a_table_of_other_numbers_without_a_header_is_refused(tmp_path):
    with pytest.raises(RefusedFile, match="row 2 ends before it begins") as refused:
        load(write(tmp_path / "x.csv", "10,20,30,40\n17,90,80,70\n"))
    assert "id,lower,upper,size" in refused.value.hint


def test_times_may_begin_anywhere(tmp_path):
    assert read(write(tmp_path / "x.csv", "id,lower,upper,size\na,-10,-5,4\nb,-6,3,4\n")).devices[
        0
    ].usage.allocated.tolist() == [
        4,
        8,
        4,
        0,
    ]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 100)), min_size=1, max_size=30))
def test_the_load_is_the_most_that_overlaps(tmp_path_factory, buffers):
    rows = [(min(a, b), max(a, b) + 1, size) for a, b, size in buffers]
    file = tmp_path_factory.mktemp("lifespans") / "x.csv"
    write(file, "id,lower,upper,size\n" + "".join(f"{i},{a},{b},{s}\n" for i, (a, b, s) in enumerate(rows)))
    most = max(sum(s for a, b, s in rows if a <= t < b) for t in range(32))
    assert int(read(file).devices[0].usage.allocated.max()) == most


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id,lower,upper,size\n", "no rows"),
        ("id,lower,upper,size\n\n\n", "no rows"),
        ("id,lower,upper,size\na,0,3\n", "column"),
        ("id,lower,upper,size\na,0,x,4\n", "convert"),
        ("id,lower,upper,size\na,0,99999999999999999999,4\n", "convert"),
        ("id,lower,upper,size\na,0,1.5,4\n", "convert"),
        ("id,lower,upper,size\na,0,3,0\n", "no lifetimes"),
    ],
)
def test_what_is_refused(tmp_path, text, reason):
    with pytest.raises(RefusedFile) as refusal:
        read(write(tmp_path / "x.csv", text))
    assert reason in refusal.value.message
    assert "id,lower,upper,size" in refusal.value.hint


def test_bytes_that_are_no_text_are_refused(tmp_path):
    file = tmp_path / "x.csv"
    file.write_bytes(b"id,lower,upper,size\na,0,3,4\n\xff\xfe,1,2,3\n")
    with pytest.raises(RefusedFile, match="not UTF-8"):
        read(file)


def test_a_compressed_list_of_absurd_length_is_refused(tmp_path):
    file = tmp_path / "x.csv.gz"
    file.write_bytes(gzip.compress(b"id,lower,upper,size\n" + b"a,0,1,1\n" * 6_000_000, 1))
    with pytest.raises(RefusedFile, match="more than"):
        read(file)


def test_sniff():
    assert sniff(b"id,lower,upper,size\n")
    assert sniff(b"buffer_id,begin,end,size\n")
    assert sniff(b"b1,0,3,4\nb2,1,2,3")
    assert not sniff(b"a,b,c,d\n")
    assert not sniff(b"1,2,3\n")
    assert not sniff(np.arange(8).tobytes())
