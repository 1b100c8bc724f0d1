"""Streams of any size, encoding and compression are searched, and the lines around a match are returned complete."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.errors import MemdiagError
from memdiag.oom import anchors, scan
from memdiag.oom.dialects import DIALECTS, dialects, words_of
from memdiag.oom.gate import CLUES, WORDS, Gate
from memdiag.oom.read import read_files, read_text
from memdiag.oom.scan import ReadTally, windows
from memdiag.oom.streams import chunks_of_file

MESSAGE = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of "
    "8.00 GiB"
)
FILLER = "step 1 loss 0.5\n"
GATE = Gate([anchor for dialect in dialects() for anchor in dialect.ANCHORS], (*WORDS, *anchors.WORDS), CLUES)
EXAMPLES = [example for dialect in dialects() for example in dialect.EXAMPLES]


def _chunks(data: bytes, size: int):
    return (data[start : start + size] for start in range(0, len(data), size))


def _long(message: str, before: int = 40_000, after: int = 40_000) -> str:
    # Longer than the first and the last chunk, in which more is searched for than in the middle.
    return FILLER * before + message + "\n" + FILLER * after


def test_the_generated_table_equals_the_dialects():
    is_current = {name: tuple(DIALECTS[name].ANCHORS) for name in DIALECTS.targets} == anchors.ANCHORS
    words = tuple(word for name in DIALECTS.targets for word in words_of(DIALECTS[name]))
    assert is_current, "run: python -m tests.oom.write_anchors"
    assert words == anchors.WORDS, "run: python -m tests.oom.write_anchors"


def test_a_dialect_that_is_missing_from_the_generated_table_is_read_all_the_same(monkeypatch):
    monkeypatch.delitem(anchors.ANCHORS, "julia")
    (found,) = read_text("ERROR: Out of GPU memory trying to allocate 4.000 GiB").messages
    assert found.program == "Julia"


@pytest.mark.parametrize(("_form", "message"), EXAMPLES)
def test_every_message_is_found_in_the_middle_of_a_long_log(_form, message):
    plain, found = read_text(message), read_text(_long(message))
    assert [(one.dialect, one.fields) for one in found.messages] == [
        (one.dialect, one.fields) for one in plain.messages
    ]
    assert [one.line - 40_000 for one in found.messages] == [one.line for one in plain.messages]


def test_a_message_that_names_only_vmem_is_found_in_the_middle_of_a_long_log():
    (found,) = read_text(_long("Mosaic failed to compile TPU kernel: Insufficient scoped vmem: 21.50M > 16M")).messages
    assert found.fields["limit_bytes"] == 16 << 20


@pytest.mark.parametrize("width", [40, 61, 80, 100, 101, 102, 103, 104, 105, 106, 107, 120])
def test_a_wrapped_message_is_found_wherever_it_is_broken(width):
    wrapped = "\n".join(MESSAGE[start : start + width] for start in range(0, len(MESSAGE), width))
    (found,) = read_text(_long(wrapped)).messages
    assert found.fields["total_bytes"] == 8 << 30


@given(st.integers(0, 3000), st.integers(300, 5000), st.sampled_from(["\n", "\r\n"]))
def test_chunks_may_end_anywhere(before, size, end):
    log = (end.join(["x" * 37] * before + [MESSAGE] + ["y" * 41] * 900) + end).encode()
    (window,) = windows(_chunks(log, size), GATE, ReadTally())
    assert (before + 1, MESSAGE) in [(number, line.rstrip("\r")) for number, line in window.lines]


def test_lines_and_bytes_are_counted():
    for text, lines in (
        ("", 0),
        ("a", 1),
        ("a\n", 1),
        ("a\nb", 2),
        (FILLER * 50_000, 50_000),
        (FILLER * 50_000 + "end", 50_001),
    ):
        tally = ReadTally()
        list(windows(_chunks(text.encode(), 1000), GATE, tally))
        assert (tally.num_lines, tally.num_bytes) == (lines, len(text))


def test_each_of_many_matching_lines_is_in_one_window_of_bounded_size():
    log = "".join(
        f"[rank{rank}]: CUDA out of memory. Tried to allocate {rank}.00 MiB\n" for rank in range(20_000)
    ).encode()
    seen: list[int] = []
    for window in windows(_chunks(log, 1 << 16), GATE, ReadTally()):
        assert len(window.lines) <= scan.LINES_OF_WINDOW + scan.LINES_AFTER + scan.LINES_BEFORE
        seen += [number for number, _line in window.lines[window.first : window.end]]
        window.read.update(range(len(window.lines)))
    assert seen == list(range(1, 20_001))


def test_a_very_long_line_uses_bounded_memory():
    log = (b"x" * (1 << 16) for _ in range(640))
    tracemalloc.start()
    try:
        assert list(windows(log, GATE, ReadTally())) == []
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_message_in_a_very_long_line_is_found():
    (found,) = read_text("x " * 400_000 + MESSAGE + " y" * 400_000).messages
    assert (found.line, found.fields["requested_bytes"]) == (1, 3 << 29)


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(lambda data: data, id="plain"),
        pytest.param(gzip.compress, id="gzip"),
        pytest.param(lzma.compress, id="xz"),
        pytest.param(bz2.compress, id="bzip2"),
        pytest.param(lambda data: gzip.compress(data)[:-9], id="gzip cut off"),
        pytest.param(lambda data: data.decode().encode("utf-16"), id="UTF-16"),
        pytest.param(lambda data: b"\xfe\xff" + data.decode().encode("utf-16-be"), id="UTF-16, big end first"),
        pytest.param(lambda data: data.decode().encode("utf-16-le"), id="UTF-16 without a mark"),
        pytest.param(lambda data: b"\xef\xbb\xbf" + data, id="UTF-8 with a mark"),
        pytest.param(lambda data: bytes(range(256)) * 9 + b"\n" + data, id="binary before it"),
    ],
)
def test_files_of_any_compression_and_encoding_are_read(tmp_path, packed):
    path = tmp_path / "log"
    path.write_bytes(packed(_long(MESSAGE, 30_000, 30_000).encode()))
    (found,) = read_files([path]).messages
    assert (found.source, found.rank, found.fields["total_bytes"]) == (str(path), 3, 8 << 30)


def test_progress_is_reported(tmp_path):
    path = tmp_path / "log"
    path.write_text(FILLER * 60_000, encoding="utf-8")
    told: list[tuple[str, int, int | None]] = []
    read_files([path], progress=lambda name, done, total: told.append((name, done, total)))
    size = path.stat().st_size
    assert told[-1] == (str(path), size, size)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_unreadable_paths_are_an_error(tmp_path):
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(MemdiagError) as error:
            read_files([path])
        assert str(path) in str(error.value)
        assert error.value.hint


def test_an_empty_file_has_no_messages(tmp_path):
    path = tmp_path / "log"
    path.touch()
    assert read_files([path]).messages == ()
    assert list(chunks_of_file(str(path))) == []


@pytest.mark.parametrize(
    ("calm", "message"),
    [
        ("worker finished with exit code 0", "worker finished with exit code 137"),
        ("what to do about CUDA out of memory errors? See docs/memory.md", MESSAGE),
        ("what to do about CUDA out of memory errors? See docs/memory.md", "RuntimeError: CUDA error: out of memory"),
    ],
)
def test_frequent_false_matches_hide_no_message(calm, message):
    lines = f"{FILLER * 100}{calm}\n" * 400
    (expected,) = read_text(message).messages
    found = read_text(f"{lines}{message}\n{lines}").messages
    assert [(one.dialect, one.fields) for one in found] == [(expected.dialect, expected.fields)]


@pytest.mark.parametrize("before", [0, 5000])
def test_messages_that_journald_exports_as_bytes_are_read(tmp_path, before):
    path = tmp_path / "journal.json"
    calm = json.dumps({"MESSAGE": [27, 91, 51, 49, 109, 111, 107]}) + "\n"
    path.write_text(calm * before + json.dumps({"MESSAGE": list(f"\33[31m{MESSAGE}\33[0m".encode())}) + "\n")
    (expected,) = read_text(MESSAGE).messages
    (found,) = read_files([path]).messages
    assert (found.fields, found.line) == (expected.fields, before + 1)
    path.write_text('{"MESSAGE":[1000, 2]}\n')
    assert read_files([path]).messages == ()
