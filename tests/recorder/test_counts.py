"""What is recorded on the CPU, byte for byte, against a count below PyTorch: see counter.c."""

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
    """Returns what the counter saw, as (bytes or minus bytes, address), and the bytes that other libraries asked for."""
    calls, other = [], 0
    for line in path.read_text().splitlines():
        what, first, second = line.split()
        if what == "other":
            other = int(second)
        else:
            calls.append((int(second) if what == "+" else -int(second), int(first)))
    return calls, other


def recorded_in(path):
    """Returns the same from a recording."""
    (entries,) = pickle.loads(path.read_bytes())["device_traces"]
    signs = {"alloc": 1, "free_requested": -1}
    return [(signs[entry["action"]] * entry["size"], entry["addr"]) for entry in entries if entry["action"] in signs]


def without_what_was_before(counted, recorded):
    """Returns the calls counted since the recording began, without the frees of what had been allocated before, and their bytes."""
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
    """Returns what is live after all calls: bytes by address."""
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
    """The same calls in the same order, from the first that is recorded to the end of the recording."""
    log = tmp_path / "calls"
    run = cpu.train(*words, env={"LD_PRELOAD": str(counter), "MEMDIAG_COUNTER": str(log)})
    counted, other = counted_in(log)
    recorded = recorded_in(run.path())
    since, gone_before, _ = without_what_was_before(counted, recorded)
    at_exit = since[len(recorded) :]
    since = since[: len(recorded)]
    assert recorded == since
    assert sum(size for size, _ in recorded if size > 0) > 5_000_000
    # after the recording the interpreter only lets things go
    assert [call for call in at_exit if call[0] > 0] == []
    assert gone_before < 10_000  # what torch allocates while it is imported
    assert other >= 0
    content = pickle.loads(run.path().read_bytes())
    assert {segment["address"]: segment["total_size"] for segment in content["segments"]} == live_after(since)
    own = content["memdiag"]
    assert own["unseen_frees"] == 0
    assert own["paused_seconds"] == 0


def test_threads_are_bounded(cpu, counter, tmp_path):
    """With threads of PyTorch's own: what is missing is no more than what those threads allocated themselves."""
    log = tmp_path / "calls"
    run = cpu("threads.py", env={"LD_PRELOAD": str(counter), "MEMDIAG_COUNTER": str(log), "OMP_NUM_THREADS": "3"})
    counted, _ = counted_in(log)
    recorded = recorded_in(run.path())
    counted_allocs, recorded_allocs = ([call for call in calls if call[0] > 0] for calls in (counted, recorded))
    missing = sum(size for size, _ in counted_allocs) - sum(size for size, _ in recorded_allocs)
    said = int(run.done.stdout.split()[-1])  # what its own thread allocated
    assert said <= missing <= said + 200_000
    assert live_after(recorded)  # and no free without its allocation
