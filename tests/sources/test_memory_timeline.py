"""Memory timelines are read as changes by category or as sums, with the action numbers of PyTorch and torch_npu."""

import gzip
import json

import pytest

from memdiag.errors import RefusedFile
from memdiag.sources import load
from memdiag.sources.memory_timeline import read, sniff
from memdiag.trace import schema

NS = 1_700_000_000_000_000_000
PARAMETER, OPTIMIZER, ACTIVATION, GRADIENT, DETAIL, NONE = 0, 1, 4, 5, 6, 7


def write(path, content):
    path.write_text(json.dumps(content))
    return path


def rows(base):
    before, created, changed, destroyed = range(base, base + 4)
    return [
        [-1, before, 1000, PARAMETER],
        [NS, created, 100, ACTIVATION],
        [NS + 1000, created, 100, GRADIENT],
        [NS + 2000, changed, -100, ACTIVATION],
        [NS + 2000, changed, 100, NONE],
        [NS + 3000, destroyed, -100, NONE],
        [NS + 4000, changed, -1000, PARAMETER],
        [NS + 4000, changed, 1000, PARAMETER],
        [NS + 5000, destroyed, -100, GRADIENT],
    ]


@pytest.mark.parametrize("base", [0, 1], ids=["torch_npu", "torch"])
def test_changes(tmp_path, base):
    trace = load(write(tmp_path / "t.raw.json", rows(base)))
    device = trace.devices[0]
    assert (trace.format, trace.backend, trace.complete_from_start) == ("memory-timeline", None, False)
    a, f = schema.ALLOC, schema.FREE_COMPLETED
    assert device.events.action.tolist() == [a, a, a, f, f]
    assert device.events.tensor.tolist() == [0, 1, 2, 1, 2]
    assert device.events.time_us.tolist() == [-1, *(NS // 1000 + t for t in (0, 1, 3, 5))]
    assert [schema.CATEGORIES[c] for c in device.tensors.category] == ["parameter", "activation", "gradient"]
    assert device.usage.allocated.tolist() == [1000, 1100, 1200, 1100, 1000]
    assert device.usage.reserved.max() == device.usage.requested.max() == -1
    assert {note.code for note in trace.notes} >= {"MD910", "MD911", "MD913", "MD915", "MD917"}


def test_gzip_and_a_list_of_one(tmp_path):
    file = tmp_path / "t.raw.json.gz"
    file.write_bytes(gzip.compress(json.dumps(rows(1)[:1]).encode()))
    assert load(file).num_events == 1


def test_a_free_of_nothing_seen_was_there_before(tmp_path):
    device = read(write(tmp_path / "t.json", [[NS, 4, -64, NONE], [NS, 2, 32, NONE]])).devices[0]
    assert device.start["allocated"] == 64
    assert device.usage.allocated.tolist()[-1] == 32


def test_halves_of_a_change_keep_the_sum_right(tmp_path):
    device = read(
        write(tmp_path / "t.json", [[NS, 3, 64, NONE], [NS, 2, 32, NONE], [NS, 3, -64, NONE], [NS, 4, -32, NONE]])
    ).devices[0]
    assert device.usage.allocated.tolist() == [64, 96, 32, 0]


def test_unusable_rows_are_counted(tmp_path):
    bad = [[NS, 9, 1, 0], [NS, 1, 1, 99], [NS, 1], "x", [NS, 1, None, 0], [NS, 1, 1 << 60, 0]]
    trace = read(write(tmp_path / "t.json", [*rows(1), *bad]))
    assert any(note.code == "MD916" and "6 rows" in note.text for note in trace.notes)


def test_sums_by_category(tmp_path):
    times = [1_700_000_000_000_000 + t for t in range(3)]
    sums = [[0, 1000, 0, 0, 0, 0, 0, 0, 24], [0, 1000, 0, 0, 0, 500, 0, 0, 24], [0, 1000, 0, 0, 0, 0, 0, 0, 0]]
    trace = load(write(tmp_path / "t.json", [times, sums]))
    device = trace.devices[0]
    assert device.usage.allocated.tolist() == [1024, 1524, 1000]
    assert device.events.time_us.tolist() == times
    assert len(device.tensors) == 0
    said = next(note.text for note in trace.notes if note.code == "MD915")
    assert "parameters 1000 B, activations 500 B, others 24 B" in said


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[]", "no memory events"),
        ("[[],[]]", "no memory events"),
        ("[[1,2],[[1]]]", "differ in number"),
        ("[[1,2],[[1],[1,2]]]", "different lengths"),
        ("[[1],[[1]],[2]]", "more than times and sums"),
        ("[[1,1,1", "cut"),
        ("[[1,2,3,0]", "cut"),
        ('[["a"]]', "could not convert"),
        ("[[1e400]]", "infinity"),
        ("[[1.5]]", "not a whole number"),
        ("[[99999999999999999999]]", "62 bits"),
        ("[[true]]", "not a number"),
    ],
)
def test_what_is_refused(tmp_path, content, reason):
    file = tmp_path / "t.json"
    file.write_text(content)
    with pytest.raises(RefusedFile) as refusal:
        read(file)
    assert reason in refusal.value.message
    assert "raw.json.gz" in refusal.value.hint


def test_a_page_with_a_picture_is_refused(tmp_path):
    file = tmp_path / "timeline.html"
    file.write_text(
        "<html>\n<head><title>GPU Memory Timeline HTML</title></head>\n<body><img "
        "src='data:image/png;base64,iVBORw0KGgo='></body></html>"
    )
    with pytest.raises(RefusedFile) as refusal:
        load(file)
    assert "picture" in refusal.value.message
    assert "raw.json.gz" in refusal.value.hint


def test_sniff():
    assert sniff(b"[ [\n-1, 1, 2, 3],")
    assert sniff(b"[[1, 2], [[0]]]")
    assert not sniff(b"[{")
    assert not sniff(b'{"traceEvents": [[1]]}')
