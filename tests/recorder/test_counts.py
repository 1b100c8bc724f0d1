"""CPU recordings agree byte for byte with a count of the C library's allocation calls (see counter.c)."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "counter.c"


@pytest.fixture
def counter(tmp_path):
    """Returns the path of the compiled counter."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs Linux and a C compiler (cc)")
    library = tmp_path / "counter.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)
    return library


def counted_in(path):
    """Returns PyTorch's counted calls as (bytes, negative for a free; address), and the bytes of other libraries."""
    calls, other = [], 0
    for line in path.read_text().splitlines():
        what, first, second = line.split()
        if what == "other":
            other = int(second)
        else:
            calls.append((int(second) if what == "+" else -int(second), int(first)))
    return calls, other


def recorded_in(path):
    """Returns the calls of a recording in the same form."""
    (entries,) = pickle.loads(path.read_bytes())["device_traces"]
    signs = {"alloc": 1, "free_requested": -1}
    return [(signs[entry["action"]] * entry["size"], entry["addr"]) for entry in entries if entry["action"] in signs]


def without_what_was_before(counted, recorded):
    """Splits the counted calls at the start of the recording.

    Returns:
        The calls since then, without frees of earlier allocations; the bytes of those frees; and the bytes allocated
        earlier that are still live.
    """
    begin = next(number for number, call in enumerate(counted) if counted[number : number + 20] == recorded[:20])
    before = {}
    for size, addr in counted[:begin]:
        if size > 0:
            before[addr] = size
        else:
            del before[addr]
    since, gone = [], 0
    for size, addr in counted[begin:]:
        if size < 0 and before.pop(addr, None):
            gone -= size
        else:
            since.append((size, addr))
    return since, gone, sum(before.values())


def live_after(calls):
    """Returns the bytes, by address, of the blocks that are live after all calls."""
    live = {}
    for size, addr in calls:
        if size > 0:
            live[addr] = size
        else:
            del live[addr]
    return live


@pytest.mark.parametrize(
    "words", [("--plain",), ("--model", "resnet", "--optimizer", "sgd", "--plain")], ids=["gpt", "resnet"]
)
def test_every_byte_is_accounted_for(cpu, counter, tmp_path, words):
    """The recording has the counted calls in the same order, from its first call to its end."""
    log = tmp_path / "calls"
    run = cpu.train(*words, env={"LD_PRELOAD": str(counter), "MEMDIAG_COUNTER": str(log)})
    counted, other = counted_in(log)
    recorded = recorded_in(run.path())
    since, gone_before, _ = without_what_was_before(counted, recorded)
    at_exit = since[len(recorded) :]
    since = since[: len(recorded)]
    assert recorded == since
    assert sum(size for size, _ in recorded if size > 0) > 5_000_000
    # After the recording, the exiting interpreter only frees memory.
    assert [call for call in at_exit if call[0] > 0] == []
    assert gone_before < 10_000  # allocated while torch was imported
    assert other >= 0
    content = pickle.loads(run.path().read_bytes())
    assert {segment["address"]: segment["total_size"] for segment in content["segments"]} == live_after(since)
    own = content["memdiag"]
    assert own["unseen_frees"] == 0
    assert own["paused_seconds"] == 0


def test_only_allocations_of_other_threads_are_missing(cpu, counter, tmp_path):
    """With PyTorch's threads in use, a recording lacks no more bytes than other threads allocated."""
    log = tmp_path / "calls"
    run = cpu("threads.py", env={"LD_PRELOAD": str(counter), "MEMDIAG_COUNTER": str(log), "OMP_NUM_THREADS": "3"})
    counted, _ = counted_in(log)
    recorded = recorded_in(run.path())
    counted_allocs, recorded_allocs = ([call for call in calls if call[0] > 0] for calls in (counted, recorded))
    missing = sum(size for size, _ in counted_allocs) - sum(size for size, _ in recorded_allocs)
    said = int(run.done.stdout.split()[-1])  # bytes that the program's own thread allocated
    assert said <= missing <= said + 200_000
    assert live_after(recorded)  # raises if a free has no allocation
