"""``memdiag watch`` on running trainings: its readings and traces, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import memdiag
from memdiag.watch.attach import attach
from memdiag.watch.link import WatchEnded
from memdiag.watch.mechanisms import remote_exec
from memdiag.watch.readings import Readings
from memdiag.watch.target import target_of
from tests.watch.conftest import NOTHING, WAIT, memdiag_watch


def one_reading(link):
    readings = Readings(link.hello, link.mechanism)
    link.read(0.0)
    return [readings.add(message) for message in link.readings(WAIT)][-1]


@pytest.mark.usefixtures("gdb")
def test_an_unmodified_training_on_the_cpu_is_watched_and_continues_unchanged(start):
    program = start()
    done = memdiag_watch(str(program.pid), "--json", "--seconds", "1", "--interval", "0.2")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["pid"] == program.pid
    assert lines[0]["mechanism"] == ("remote_exec" if remote_exec.can_enter(target_of(program.pid)) else "gdb")
    assert lines[0]["host_bytes"] > 50 << 20
    assert lines[0]["devices"] == []
    program.wait_for(2)
    assert program.stop() == NOTHING
    unwatched = start()
    unwatched.wait_for(len(program.losses()))
    unwatched.stop()
    assert unwatched.losses()[: len(program.losses())] == program.losses()


@pytest.mark.usefixtures("gdb")
def test_a_training_on_a_simulated_card_shows_parts_that_sum_to_it(start):
    program = start("cuda")
    link = attach(program.pid)
    try:
        device = one_reading(link).devices[0]
    finally:
        link.close()
    assert device.device == "cuda:0"
    assert sum(device.parts.values()) == device.total_bytes
    parts = device.parts
    assert parts["tensors"] + parts["pending"] + parts["cached"] == device.reserved_bytes
    assert min(parts.values()) >= 0
    assert program.stop() == NOTHING


def test_a_snapshot_with_history_names_the_call_site_of_a_leak(start, tmp_path):
    program = start("cuda", armed=True)
    (program.folder / "leak").touch()
    link = attach(program.pid)
    path = tmp_path / "trace.pkl"
    try:
        assert link.mechanism == "armed"
        assert link.history(True, 100_000)["backends"] == ["cuda"]
        program.wait_for(8)
        largest = one_reading(link)
        link.snapshot(path)
    finally:
        link.close()
    assert any("train.py" in site.name for site in largest.sites)
    assert program.stop() == NOTHING
    trace = memdiag.load(path)
    assert trace.devices[0].num_events > 0
    report = memdiag.analyze(trace)
    assert "MD301" in [finding.code for finding in report.findings]


def test_the_history_of_the_cpu_starts_late_and_ends(start, tmp_path):
    program = start(armed=True)
    link = attach(program.pid)
    path = tmp_path / "trace.pkl"
    try:
        assert link.history(True, 100_000)["backends"] == ["cpu"]
        program.wait_for(4)
        link.snapshot(path)
    finally:
        link.close()
    program.wait_for(2)
    assert program.stop() == NOTHING
    assert memdiag.load(path).backend == "cpu"


def test_python_3_14_lets_memdiag_in_without_a_debugger(start):
    program = start()
    if not remote_exec.can_enter(target_of(program.pid)):
        pytest.skip("needs a Python 3.14 with torch: name it in MEMDIAG_TEST_TORCH_PYTHON")
    for _ in range(3):
        link = attach(program.pid)
        assert link.mechanism == "remote_exec"
        assert one_reading(link).host_bytes > 50 << 20
        link.close()
    program.wait_for(2)
    assert program.stop() == NOTHING


def test_a_history_of_the_program_itself_goes_on(start, tmp_path):
    program = start("cuda", armed=True, options=["history"])
    link = attach(program.pid)
    try:
        link.history(True, 10)
        program.wait_for(2)
        link.snapshot(tmp_path / "trace.pkl")
    finally:
        link.close()
    program.wait_for(2)
    assert memdiag.load(tmp_path / "trace.pkl").devices[0].num_events > 10
    left = program.stop()
    assert left.pop("events") > 10
    assert left == {name: value for name, value in NOTHING.items() if name != "events"}


def test_steps_are_counted_while_watched(start):
    program = start(armed=True)
    link = attach(program.pid)
    counts = []
    try:
        link.read(0.1)
        until = time.monotonic() + WAIT
        while len({count for count in counts if count}) < 2 and time.monotonic() < until:
            counts += [message["steps"] for message in link.readings(1.0)]
    finally:
        link.close()
    known = [count for count in counts if count is not None]
    assert known == sorted(known)
    assert known[-1] >= 2
    assert program.stop() == NOTHING


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_attaching_again_and_again_changes_no_loss_and_leaves_nothing(start, device):
    program = start(device, armed=True)
    for number in range(20):
        link = attach(program.pid)
        one_reading(link)
        if number % 4 == 0:
            link.history(True, 1000)
        link.close()
    program.wait_for(2)
    assert program.stop() == NOTHING
    if device == "cpu":
        unwatched = start()
        unwatched.wait_for(len(program.losses()))
        unwatched.stop()
        assert unwatched.losses()[: len(program.losses())] == program.losses()


@pytest.mark.parametrize("armed", [True, False])
def test_a_killed_watcher_is_harmless(start, armed, request):
    if not armed:
        request.getfixturevalue("gdb")
    program = start("cuda", armed=armed)
    command = [sys.executable, "-m", "memdiag", "watch", str(program.pid), "--json", "--history"]
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert json.loads(watcher.stdout.readline())["history"] is True
    watcher.kill()
    watcher.communicate()
    program.wait_for(2)
    assert program.stop() == NOTHING


def test_a_process_that_dies_while_watched_ends_the_watch(start):
    program = start(armed=True)
    link = attach(program.pid)
    one_reading(link)
    os.kill(program.pid, signal.SIGKILL)
    program.process.wait()
    with pytest.raises(WatchEnded):
        _read_on(link)
    link.close()


def _read_on(link):
    link.read(0.1)
    for _ in range(1000):
        list(link.readings(0.1))


def test_the_command_says_that_the_process_has_ended(start):
    program = start(armed=True)
    command = [sys.executable, "-m", "memdiag", "watch", str(program.pid), "--json"]
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watcher.stdout.readline()
    program.process.kill()
    program.process.wait()
    _, said = watcher.communicate(timeout=WAIT)
    assert watcher.returncode == 0
    assert said == f"process {program.pid} has ended\n"


def test_a_process_without_accelerator_and_history_has_nothing_to_write(start, tmp_path):
    program = start(armed=True)
    done = memdiag_watch(str(program.pid), "--once", "--snapshot", str(tmp_path / "trace.pkl"))
    assert done.returncode == 2
    assert "uses no accelerator" in done.stderr
    assert "--history" in done.stderr
    assert program.stop() == NOTHING


def test_an_armed_process_removes_its_socket_at_its_end(start):
    from memdiag.watch.mechanisms import armed
    from memdiag.watch.target import target_of

    program = start(armed=True)
    path = armed._socket(target_of(program.pid))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    program.stop()
    assert not path.exists()


def test_the_socket_of_a_killed_process_is_removed_by_the_next_one(start):
    from memdiag.watch.mechanisms import armed
    from memdiag.watch.target import target_of

    killed = start(armed=True)
    path = armed._socket(target_of(killed.pid))
    killed.process.kill()
    killed.process.wait()
    assert path.exists()
    start(armed=True).stop()
    assert not path.exists()
