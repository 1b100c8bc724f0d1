"""Plain events in an .npz are read, and archives with wrong contents are refused."""

import io
import zipfile

import numpy as np
import pytest

from memdiag.errors import RefusedFile
from memdiag.sources import load
from memdiag.sources.event_npz import sniff
from memdiag.trace import schema

OPS = [
    "alloc",
    "free",
    "empty_cache",
    "record_stream",
    "complete",
    "sync",
    "set_fraction",
    "pool_begin",
    "pool_end",
    "pool_release",
    "reset_peak",
    "external",
    "set_total",
]


def columns(*rows, ops=OPS, **more):
    op, identity, size, stream = (np.array(values) for values in zip(*rows, strict=True))
    return {
        "op": op.astype(np.int8),
        "id": identity.astype(np.int32),
        "size": size.astype(np.int64),
        "stream": stream,
        "ops": np.array(ops),
        **more,
    }


def write(path, arrays):
    np.savez_compressed(path, **arrays)
    return path


def test_every_op_has_its_action(tmp_path):
    rows = [(0, 5, 100, 2), *((i, 5 if i in (1, 3) else 0, 0, 1) for i in range(2, len(OPS))), (1, 5, 0, 2)]
    trace = load(write(tmp_path / "x.npz", columns(*rows, total=np.int64(1 << 34), done=np.array("manual"))))
    device = trace.devices[0]
    assert (trace.format, trace.backend, trace.complete_from_start) == ("event-npz", None, True)
    assert [schema.ACTIONS[a] for a in device.events.action] == ["alloc", *OPS[2:], "free_completed"]
    assert device.events.size.tolist() == [100, *[0] * 11, 100]
    assert device.events.stream.tolist() == [2, *[1] * 11, 2]
    assert device.events.tensor.tolist() == [0, *[-1] * 11, 0]
    assert device.usage.requested.tolist() == [100] * 12 + [0]
    assert device.usage.reserved.max() == -1
    assert device.capacity_bytes == 1 << 34
    assert trace.settings == {"done": "manual"}
    assert {note.code for note in trace.notes} == {"MD910", "MD911", "MD913"}


def test_nothing_asked_for_is_no_tensor(tmp_path):
    device = load(write(tmp_path / "x.npz", columns((0, 1, 0, 0), (0, 2, 8, 0), (1, 1, 0, 0)))).devices[0]
    assert device.num_events == 3
    assert device.events.tensor.tolist() == [-1, 0, -1]


def test_ids_may_be_used_again(tmp_path):
    device = load(write(tmp_path / "x.npz", columns((0, 1, 10, 0), (1, 1, 0, 0), (0, 1, 20, 0), (1, 1, 0, 0)))).devices[
        0
    ]
    assert device.events.size.tolist() == [10, 10, 20, 20]
    assert device.usage.requested.tolist() == [10, 0, 20, 0]


def test_frees_of_nothing_and_unknown_ops_are_noted(tmp_path):
    trace = load(
        write(tmp_path / "x.npz", columns((0, 1, 10, 0), (1, 7, 0, 0), (2, 0, 0, 0), ops=["alloc", "free", "dance"]))
    )
    assert [schema.ACTIONS[a] for a in trace.devices[0].events.action] == ["alloc", "free_completed", "unknown"]
    said = next(note.text for note in trace.notes if note.code == "MD916")
    assert "1 free without an allocation" in said
    assert "dance" in said


def test_without_streams(tmp_path):
    arrays = columns((0, 1, 10, 0))
    del arrays["stream"]
    assert load(write(tmp_path / "x.npz", arrays)).devices[0].events.stream.tolist() == [0]


GOOD = columns((0, 1, 10, 0), (1, 1, 0, 0))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"op": None}, "no column 'op'"),
        ({"ops": None}, "no column 'ops'"),
        ({"op": np.zeros(3, np.int8)}, "different lengths"),
        ({"op": np.array([0, 99], np.int8)}, "does not name"),
        ({"op": np.array([0, -1], np.int8)}, "does not name"),
        ({"size": np.zeros(2)}, "no integers"),
        ({"size": np.array([2**63, 1], np.uint64)}, "64 bits"),
        ({"size": np.array([2**60, 1])}, "any device"),
        ({"size": np.array([-5, 1])}, "any device"),
        ({"id": np.zeros((2, 1), np.int64)}, "plain values"),
        ({"id": np.array([object(), None])}, "plain values"),
        ({"ops": np.array([1, 2])}, "no names"),
        ({"ops": np.array(["x" * 100])}, "no names"),
        ({name: values[:0] for name, values in GOOD.items() if name != "ops"}, "no memory events"),
    ],
)
def test_what_is_refused(tmp_path, change, reason):
    arrays = {name: values for name, values in {**GOOD, **change}.items() if values is not None}
    with pytest.raises(RefusedFile) as refusal:
        load(write(tmp_path / "x.npz", arrays))
    assert reason in refusal.value.message
    assert "savez" in refusal.value.hint


def archive(path, method=zipfile.ZIP_DEFLATED, **members):
    with zipfile.ZipFile(path, "w", method) as packed:
        for name, content in members.items():
            packed.writestr(f"{name}.npy", content)
    return path


def npy(shape, dtype="<i8", data=b""):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"shape": shape, "fortran_order": False, "descr": dtype})
    return out.getvalue() + data


@pytest.mark.parametrize(
    ("member", "method", "reason"),
    [
        (npy((1 << 40,)), zipfile.ZIP_DEFLATED, "cut"),
        (npy((20_000_000,), "<i1", bytes(20_000_000)), zipfile.ZIP_DEFLATED, "rows"),  # 20 kB that would become 160 MB
        (npy((2,), "<i8", bytes(16)), zipfile.ZIP_LZMA, "packed"),
        (b"not numpy", zipfile.ZIP_DEFLATED, "magic"),
        (b"\x93NUMPY\x01\x00\x10\x00{'descr': print}", zipfile.ZIP_DEFLATED, "malformed"),
    ],
)
def test_archives_that_are_not_what_they_say(tmp_path, member, method, reason):
    with pytest.raises(RefusedFile, match=reason):
        load(archive(tmp_path / "x.npz", method, op=member))


def test_cut_and_changed_archives_are_refused(tmp_path):
    good = write(tmp_path / "x.npz", GOOD).read_bytes()
    file = tmp_path / "y.npz"
    for content in (good[:100], good[:-30], good[:60] + b"\x00\x01\x02" + good[63:]):
        file.write_bytes(content)
        with pytest.raises(RefusedFile):
            load(file)


def test_sniff():
    assert sniff(b"PK\x03\x04" + b"\x00" * 26 + b"op.npy")
    assert not sniff(b"PK\x03\x04" + b"\x00" * 26 + b"word/document.xml")
