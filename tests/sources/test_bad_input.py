"""Bad input is refused by name with a hint, in bounded memory and without execution, or opens with a note."""

from __future__ import annotations

import copy
import gzip
import os
import pickle
import struct
import subprocess
import sys

import pytest

from memdiag.errors import MemdiagError, RefusedFile
from memdiag.sources import load

MIB = 1 << 20
ADDRESS = 0x7F0000000000


def snapshot():
    """Returns a small valid snapshot: one segment, two tensors, one of them freed."""
    frames = [{"filename": "/home/me/train.py", "line": 7, "name": "step"}]
    blocks = [
        {
            "address": ADDRESS,
            "size": MIB // 2,
            "requested_size": MIB // 2,
            "state": "active_allocated",
            "frames": frames,
        },
        {"address": ADDRESS + MIB // 2, "size": 3 * MIB // 2, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    segment = {
        "device": 0,
        "address": ADDRESS,
        "total_size": 2 * MIB,
        "allocated_size": MIB // 2,
        "active_size": MIB // 2,
        "requested_size": MIB // 2,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }

    def entry(action, addr, size, time):
        return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time, "frames": frames}

    trace = [
        entry("segment_alloc", ADDRESS, 2 * MIB, 1),
        entry("alloc", ADDRESS, MIB // 2, 2),
        entry("alloc", ADDRESS + MIB // 2, 4096, 3),
        entry("free_requested", ADDRESS + MIB // 2, 4096, 4),
        entry("free_completed", ADDRESS + MIB // 2, 4096, 5),
    ]
    return {"segments": [segment], "device_traces": [trace], "allocator_settings": {}, "external_annotations": []}


def write(tmp_path, data):
    file = tmp_path / "trace.pickle"
    file.write_bytes(data if isinstance(data, bytes) else pickle.dumps(data, 4))
    return file


def refusal(file):
    with pytest.raises(MemdiagError) as raised:
        load(file)
    assert raised.value.hint
    assert "\n" not in raised.value.message
    return raised.value.message


class Payload:
    """Creates a file if it is unpickled."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def text(value):
    return b"\x8c" + bytes([len(value)]) + value.encode()


def payloads(mark):
    """Returns every way in which a pickle can request code: name of the opcode, bytes."""
    command = text(f"touch {mark}")
    call = b"c" + b"posix\nsystem\n"
    return {
        "GLOBAL": b"\x80\x02" + call + b"(X\x04\x00\x00\x00truetR.",
        "STACK_GLOBAL": b"\x80\x04" + text("posix") + text("system") + b"\x93" + command + b"\x85R.",
        "STACK_GLOBAL from the memo": b"\x80\x04"
        + text("posix")
        + b"\x94"
        + text("system")
        + b"\x94h\x00h\x01\x93"
        + command
        + b"\x85R.",
        "REDUCE": b"\x80\x04N)R.",
        "BUILD": b"\x80\x04}}b.",
        "INST": b"(S'true'\niposix\nsystem\n.",
        "OBJ": b"\x80\x02(NNo.",
        "NEWOBJ": b"\x80\x02N)\x81.",
        "NEWOBJ_EX": b"\x80\x04N)}\x92.",
        "PERSID": b"\x80\x00Pposix\n.",
        "BINPERSID": b"\x80\x02NQ.",
        "EXT1": b"\x80\x02\x82\x01.",
        "EXT2": b"\x80\x02\x83\x01\x00.",
        "EXT4": b"\x80\x02\x84\x01\x00\x00\x00.",
        "NEXT_BUFFER": b"\x80\x05\x97.",
        "READONLY_BUFFER": b"\x80\x05N\x98.",
        "an object among the segments": pickle.dumps({"segments": [Payload(mark)], "device_traces": []}, 4),
        "an object as a key": pickle.dumps({"segments": [], "device_traces": [], os.system: 1}, 2),
        "an object behind honest data": pickle.dumps({**snapshot(), "extra": Payload(mark)}, 5),
    }


@pytest.mark.parametrize("name", list(payloads("")))
def test_nothing_is_executed(tmp_path, name):
    mark = tmp_path / "executed"
    message = refusal(write(tmp_path, payloads(mark)[name]))
    assert "memdiag refuses to read it, because the pickle would run code" in message
    assert not mark.exists()


def test_the_message_names_what_was_asked_for(tmp_path):
    assert "posix.system" in refusal(write(tmp_path, payloads("x")["STACK_GLOBAL"]))
    assert "posix.system" in refusal(write(tmp_path, payloads("x")["GLOBAL"]))
    assert "REDUCE" in refusal(write(tmp_path, payloads("x")["REDUCE"]))


def test_a_pickle_within_bytes_is_only_bytes(tmp_path):
    mark = tmp_path / "executed"
    trace = load(write(tmp_path, {**snapshot(), "note": pickle.dumps(Payload(mark))}))
    assert not mark.exists()
    assert "MD903" in {note.code for note in trace.notes}


def test_cut_at_every_byte(tmp_path):
    whole = pickle.dumps(snapshot(), 4)
    file = tmp_path / "trace.pickle"
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(RefusedFile):
            load(file)


BOMBS = {
    "memo index": b"\x80\x04Nr\x00\xe1\xf5\x05.",
    "dicts": b"\x80\x04" + b"}" * (20 * MIB),
    "lists": b"\x80\x04" + b"]" * (20 * MIB),
    "marks": b"\x80\x04" + b"(" * (20 * MIB),
    "nones": b"\x80\x04" + b"N" * (20 * MIB),
    "copies": b"\x80\x04N" + b"2" * (20 * MIB),
    "depth": b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b".",
    "itself": b"\x80\x04]\x94h\x00a.",
    "itself as segments": b"\x80\x04}\x94" + text("segments") + b"h\x00s.",
    "laughs": b"\x80\x04]\x94"
    + b"".join(b"](" + b"h" + bytes([i]) * 1 + b"h" + bytes([i]) + b"e\x94" for i in range(60))
    + b".",
    "a long string": b"\x80\x04\x8d" + struct.pack("<q", 1 << 60) + b"x.",
    "a negative length": b"\x80\x04\x8b" + struct.pack("<i", -1) + b".",
    "a frame beyond the end": b"\x80\x04\x95" + struct.pack("<q", 1 << 62) + b"N.",
    "an empty stack": b"\x80\x04.",
    "a missing mark": b"\x80\x04]e.",
    "shared rows": b"\x80\x04}\x94("
    + text("device_traces")
    + b"](](}\x94"
    + b"h\x01" * 3_000_000
    + b"ee"
    + text("segments")
    + b"]u.",
}


@pytest.mark.parametrize("name", list(BOMBS))
def test_bombs_are_refused_in_bounded_memory(tmp_path, name):
    file = write(tmp_path, BOMBS[name])
    program = (
        "import re, sys\nfrom memdiag.errors import MemdiagError\nfrom memdiag.sources import load\n"
        "open('/proc/self/clear_refs', 'w').write('5')  # the peak starts anew, not with that of who started this "
        "process\n"
        "try:\n    load(sys.argv[1])\nexcept MemdiagError:\n"
        "    print(re.search('VmHWM:\\\\s+([0-9]+)', open('/proc/self/status').read())[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.strip(), "it was not refused"
    assert int(done.stdout) * 1024 <= 512 * MIB + 20 * file.stat().st_size


def test_a_gzip_bomb(tmp_path):
    file = tmp_path / "trace.pickle.gz"
    with gzip.open(file, "wb") as zipped:
        for _ in range(600):
            zipped.write(b"\x80\x04" + b"N" * (MIB - 2))
    assert "expands" in refusal(file)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80", b"\x80\x04", b"PK\x03\x04", b"\x1f\x8b\x08", b"hello", b"\0" * 4096, b"{}", b"[]", b"<html></html>"],
)
def test_what_is_no_trace(tmp_path, data):
    refusal(write(tmp_path, data))


def broken(change):
    data = copy.deepcopy(snapshot())
    change(data)
    return data


WRONG = {
    "a number": 7,
    "a list of numbers": [1, 2],
    "segments is text": broken(lambda d: d.update(segments="x")),
    "segments is a dict": broken(lambda d: d.update(segments={})),
    "traces is a number": broken(lambda d: d.update(device_traces=3)),
    "an entry is text": broken(lambda d: d["device_traces"][0].append("alloc")),
    "a trace is a number": broken(lambda d: d["device_traces"].append(5)),
    "a block is a list": broken(lambda d: d["segments"][0]["blocks"].append([])),
    "an address is text": broken(lambda d: d["device_traces"][0][1].update(addr="0x7f")),
    "an address is a float": broken(lambda d: d["device_traces"][0][1].update(addr=1.5)),
    "a size is a bool": broken(lambda d: d["device_traces"][0][1].update(size=True)),
    "a size is negative": broken(lambda d: d["device_traces"][0][1].update(size=-5)),
    "a size is absurd": broken(lambda d: d["device_traces"][0][1].update(size=1 << 59)),
    "a size beyond 64 bits": broken(lambda d: d["device_traces"][0][1].update(size=1 << 90)),
    "a segment without an address": broken(lambda d: d["segments"][0].pop("address")),
    "a segment's size is None": broken(lambda d: d["segments"][0].update(total_size=None)),
    "a device is absurd": broken(lambda d: d["segments"][0].update(device=1 << 40)),
    "a key is a number": broken(lambda d: d["device_traces"][0][1].update({5: 6})),
    "no keys that matter": {"weights": [1, 2, 3]},
    "an empty dict": {},
}


@pytest.mark.parametrize("name", list(WRONG))
def test_wrong_types_are_refused(tmp_path, name):
    assert "not a memory snapshot" in refusal(write(tmp_path, WRONG[name]))


NOTED = {
    "an unknown top-level key": (lambda d: d.update(weather="fine"), "MD903"),
    "an unknown key of entries": (lambda d: d["device_traces"][0][1].update(color="red"), "MD903"),
    "an unknown action": (
        lambda d: d["device_traces"][0].append({"action": "dance", "addr": 5, "size": 1, "stream": 0}),
        "MD903",
    ),
    "an entry without an action": (lambda d: d["device_traces"][0].append({"addr": 5, "size": 1}), "MD903"),
    "a double free": (lambda d: d["device_traces"][0].append(dict(d["device_traces"][0][4])), "MD902"),
    "an alloc on a live address": (lambda d: d["device_traces"][0].append(dict(d["device_traces"][0][1])), "MD902"),
    "time that goes back": (lambda d: d["device_traces"][0][3].update(time_us=0), "MD909"),
    "a block that the trace freed": (
        lambda d: d["segments"][0]["blocks"][1].update(state="active_allocated", size=4096),
        "MD901",
    ),
    "a segment that the trace does not know": (
        lambda d: d["device_traces"][0].pop(0) and d["segments"].clear(),
        "MD901",
    ),
    "no segments": (lambda d: d.pop("segments"), "MD904"),
    "no trace": (lambda d: d.pop("device_traces"), "MD906"),
    "an empty trace": (lambda d: d.update(device_traces=[[]]), "MD906"),
    "nothing at all": (lambda d: d.update(device_traces=[], segments=[]), "MD906"),
}


@pytest.mark.parametrize("name", list(NOTED))
def test_oddities_open_with_a_note(tmp_path, name):
    change, code = NOTED[name]
    trace = load(write(tmp_path, broken(change)))
    assert code in {note.code for note in trace.notes}


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_opens_the_same(tmp_path, protocol):
    trace = load(write(tmp_path, pickle.dumps(snapshot(), protocol)))
    assert trace.num_events == 5
    assert trace.devices[0].end == {
        "reserved": 2 * MIB,
        "allocated": MIB // 2,
        "active": MIB // 2,
        "requested": MIB // 2,
    }
    assert trace.stacks.label(0) == "train.py:7 step"
    assert not trace.devices[0].anomalies


@pytest.mark.parametrize("size", [1 << 50, 1 << 59])
def test_a_failed_request_may_have_any_size(tmp_path, size):
    """A program computes the size from invalid data, and its trace says so."""
    failed = {"action": "oom", "size": size, "device_free": 1 << 30, "stream": 0}
    events = load(write(tmp_path, broken(lambda d: d["device_traces"][0].append(failed)))).devices[0].events
    assert events.size[-1] == size


def test_places_that_are_no_files(tmp_path):
    refusal(tmp_path)
    refusal(tmp_path / "missing.pickle")
    refusal(tmp_path / ("x" * 5000))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    refusal(loop)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refusal(pipe)
    refusal("/dev/null")
    refusal("/dev/zero")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_no_permission(tmp_path):
    file = write(tmp_path, snapshot())
    file.chmod(0)
    assert "permission" in refusal(file)


def test_the_command_line_says_it_in_two_lines(tmp_path):
    file = write(tmp_path, payloads(tmp_path / "executed")["STACK_GLOBAL"])
    done = subprocess.run(
        [sys.executable, "-m", "memdiag", "analyze", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0].startswith("error: ")
    assert any(line.startswith("hint: ") for line in lines)
    assert "Traceback" not in done.stderr
