"""Small files that expand through sharing, repetition or compression are read within bounds of memory and time.

A pickle can refer to an earlier object in one byte, so the data read from it can be far larger than the file. A naive
reader would take gigabytes or minutes for each of these files.
"""

from __future__ import annotations

import gzip
import pickle
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1 << 20
LARGE = 30 * MIB
START = b"\x80\x04"
# Reads each file in a separate process, and prints the outcome and the peak memory of that process.
_READER = """
import os, re, sys
from memdiag.errors import MemdiagError
from memdiag.sources import load
for line in sys.stdin:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        continue
    open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew: a process begins with that of who started it
    try:
        load(line.rstrip())
        kind = "opened"
    except MemdiagError as error:
        kind = "refused" if error.hint else "refused without a hint"
    except BaseException as error:
        kind = repr(error)
    memory = int(re.search("VmHWM:\\s+([0-9]+)", open("/proc/self/status").read())[1])
    print(kind, memory * 1024, sep="\\t", flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def reader():
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc to tell how much memory a process took")
    with subprocess.Popen(
        [sys.executable, "-c", _READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def plain(value):
    """Returns the bytes of a value within a pickle."""
    return pickle.dumps(value, 2)[2:-1]


def many(item, count):
    return b"](" + item * count + b"e"


def snapshot(segments=b"]", traces=b"]", before=b"", **more):
    """Returns a snapshot made of already pickled parts."""
    pairs = {"segments": segments, "device_traces": traces, **more}
    return START + before + b"}(" + b"".join(text(key) + value for key, value in pairs.items()) + b"u."


ENTRY = {"action": "alloc", "addr": 4096, "size": 512, "stream": 0}
SHORT = b"}(h\x00h\x04h\x01J%sh\x02M\x00\x02h\x03K\x00u"  # an entry in 23 bytes, with its keys from the memo


def short_entries(count):
    keys = b"".join(text(key) + b"\x940" for key in ("action", "addr", "size", "stream", "alloc", "segment_alloc"))
    entries = b"".join(SHORT.replace(b"%s", struct.pack("<i", 512 * number)) for number in range(count))
    return snapshot(traces=b"](](" + entries + b"ee", before=keys)


def overlapping_segments():
    trace = [{"action": "segment_alloc", "addr": 512 * n, "size": 1 << 40, "stream": 0} for n in range(50_000)]
    return pickle.dumps({"segments": [], "device_traces": [trace]}, 4)


def growing_forever():
    """Returns a well-formed snapshot in which every request reserves a segment and every other block is freed.

    The largest free range must therefore be computed for each request.
    """
    trace = []
    for n in range(60_000):
        at = (1 << 40) + n * 4 * MIB
        trace += [
            {"action": "segment_alloc", "addr": at, "size": 2 * MIB, "stream": 0},
            {"action": "alloc", "addr": at, "size": 4096, "stream": 0},
        ]
        trace += [{"action": "free_completed", "addr": at, "size": 4096, "stream": 0}] if n % 2 else []
    return pickle.dumps({"segments": [], "device_traces": [trace]}, 4)


def shared_blocks():
    blocks = many(plain({"size": 512, "state": "inactive"}), 100_000) + b"\x940"
    segment = b"}(" + text("address") + b"M\x00\x10" + text("total_size") + b"M\x00\x10" + text("blocks") + b"h\x00u"
    return snapshot(segments=many(segment, 50_000), before=blocks)


def shared_histories():
    history = many(b"}", 2_000_000) + b"\x940"
    block = b"}(" + text("size") + b"M\x00\x10" + text("history") + b"h\x00u"
    segment = (
        b"}("
        + text("address")
        + b"M\x00\x10"
        + text("total_size")
        + b"J\x00\x00\x00\x40"
        + text("blocks")
        + many(block, 50_000)
        + b"u"
    )
    return snapshot(segments=b"](" + segment + b"e", before=history)


def laughs(depth=60):
    return b"]\x94" + b"".join(b"0](" + b"h" + bytes([n]) + b"h" + bytes([n]) + b"e\x94" for n in range(depth))


def many_names(devices):
    chance = random.Random(1)  # noqa: S311 - not for secrets
    names = b"".join(b"\x8c\x04" + bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz", k=4)) for _ in range(1_500_000))
    return snapshot(traces=many(b"](" + plain(ENTRY) + b"e", devices), extra=b"](" + names + b"e")


def frames_that_differ(count):
    frame = b"](}(" + text("line") + b"J%su" + b"e"
    entry = plain(ENTRY)[:-1] + text("frames") + frame + b"u"
    return snapshot(traces=b"](](" + b"".join(entry.replace(b"%s", struct.pack("<i", n)) for n in range(count)) + b"ee")


BOMBS = {
    "nested tuples": lambda: START + b"N" + b"\x85" * LARGE + b".",
    "nested lists": lambda: START + b"]" * (LARGE // 2) + b"a" * (LARGE // 2 - 1) + b".",
    "empty strings": lambda: START + b"(" + b"U\x00" * (LARGE // 2) + b"l.",
    "pairs of nothing": lambda: START + b"(" + b"(t" * (LARGE // 2) + b"t.",
    "marks in lists": lambda: START + b"](" * (LARGE // 2) + b"e.",
    "one entry, copied": lambda: snapshot(traces=b"](](" + plain(ENTRY) + b"2" * LARGE + b"ee"),
    "one trace, many devices": lambda: snapshot(traces=many(many(plain(ENTRY), 1) + b"2" * 50, 1)),
    "a long trace, many devices": lambda: snapshot(traces=b"](" + many(plain(ENTRY), 200_000) + b"2" * 200 + b"e"),
    "shared blocks": shared_blocks,
    "shared histories": shared_histories,
    "settings that unfold": lambda: snapshot(allocator_settings=laughs()),
    "marks that unfold": lambda: snapshot(memdiag=laughs()),
    "a deep setting": lambda: snapshot(allocator_settings=b"]" * 100_000 + b"a" * 99_999),
    "a setting in itself": lambda: snapshot(allocator_settings=b"}\x94" + text("x") + b"h\x00s"),
    "very many keys": lambda: START + b"}(" + b"".join(text(f"{n:06}") + b"N" for n in range(1_500_000)) + b"u.",
    "many names, many devices": lambda: many_names(250),
    "short entries": lambda: short_entries(LARGE // len(SHORT)),
    "frames that differ": lambda: frames_that_differ(200_000),
    "overlapping segments": overlapping_segments,
    "growing forever": growing_forever,
    "gzip of zeros": lambda: gzip.compress(bytes(LARGE) * 8),
    "gzip of a pickle": lambda: gzip.compress(START + b"N" * (300 * MIB), 1),
    "gzip below the limit": lambda: gzip.compress(START + b"N" * (31 * MIB), 1),
    "gzip of a gzip": lambda: gzip.compress(gzip.compress(START + b"N" * (300 * MIB), 1)),
}


@pytest.mark.parametrize("name", list(BOMBS))
def test_bounded(reader, tmp_path, name):
    file = tmp_path / "trace.pickle"
    file.write_bytes(BOMBS[name]())
    reader.stdin.write(f"{file}\n")
    reader.stdin.flush()
    kind, memory = reader.stdout.readline().split("\t")
    assert kind in {"opened", "refused"}
    assert int(memory) <= 512 * MIB + 20 * file.stat().st_size
