"""Processes that cannot be watched: the error names the missing program or privilege."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memdiag.errors import MemdiagError
from memdiag.watch.attach import attach
from memdiag.watch.choose import pid_of
from memdiag.watch.door import Door
from memdiag.watch.mechanisms import gdb, permission, remote_exec
from memdiag.watch.target import Target, target_of
from tests.watch.conftest import memdiag_watch


@pytest.fixture
def sleeping():
    """Returns the process of a Python without torch."""
    program = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.1)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_without_an_argument_the_hint_lists_processes():
    done = memdiag_watch()
    assert done.returncode == 2
    assert "no process given" in done.stderr
    assert "pgrep" in done.stderr


def test_a_process_that_does_not_exist_is_named():
    with pytest.raises(MemdiagError, match="there is no process 4194305"):
        attach(4194305)


def test_memdiag_does_not_watch_itself():
    with pytest.raises(MemdiagError, match="memdiag's own process"):
        attach(os.getpid())


def test_a_program_that_is_not_python_is_named():
    with subprocess.Popen([shutil.which("sleep"), "60"]) as process:
        try:
            while "libc" not in Path(f"/proc/{process.pid}/maps").read_text():  # it has no files right after its start
                time.sleep(0.01)
            with pytest.raises(MemdiagError, match=r"is not Python: .*(sleep|coreutils|busybox)"):
                attach(process.pid)
        finally:
            process.kill()


@pytest.mark.usefixtures("gdb")
def test_a_python_without_torch_is_refused_before_anything_is_done_to_it(sleeping):
    with pytest.raises(MemdiagError, match="has not imported torch"):
        attach(sleeping.pid)


def test_an_unknown_way_lists_the_known_ones(sleeping):
    with pytest.raises(MemdiagError) as refused:
        attach(sleeping.pid, "strace")
    assert refused.value.hint == "use one of: armed, remote_exec, gdb"


def test_without_any_way_the_hint_says_what_to_install(sleeping, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MemdiagError, match="gdb is missing") as refused:
        attach(sleeping.pid)
    assert "memdiag.arm()" in refused.value.hint


def test_a_process_of_another_user_is_refused(sleeping, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(MemdiagError, match="belongs to user"):
        target_of(sleeping.pid)


def test_the_scope_of_ptrace_is_named(monkeypatch, tmp_path, sleeping):
    scope = tmp_path / "scope"
    scope.write_text("1\n")
    monkeypatch.setattr(permission, "_SCOPE", scope)
    monkeypatch.setattr(permission, "_PTRACE", 63)  # a capability that does not exist
    assert "ptrace_scope is 1" in permission.refusal(target_of(sleeping.pid)).message
    scope.write_text("0\n")
    refused = permission.refusal(target_of(sleeping.pid))
    assert "CAP_SYS_PTRACE" in refused.message
    assert "--cap-add=SYS_PTRACE" in refused.hint


@pytest.mark.usefixtures("gdb")
def test_a_debugger_that_is_attached_already_is_named(sleeping):
    command = ["gdb", "-nx", "-batch", "-p", str(sleeping.pid), "-ex", "echo attached\\n", "-ex", "shell cat"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as other:
        while "attached" not in other.stdout.readline():
            pass
        refused = permission.refusal(target_of(sleeping.pid))
        other.stdin.close()
    assert f"by process {other.pid}" in refused.message


def test_the_directory_of_a_run_without_a_living_process_is_refused(tmp_path):
    with pytest.raises(MemdiagError, match="no process of the run"):
        pid_of(str(tmp_path))


def test_text_that_is_neither_is_refused():
    with pytest.raises(MemdiagError, match="neither a process number nor a directory"):
        pid_of("train")


def test_gdb_calls_nothing_that_allocates():
    """gdb may stop a process inside malloc, which must then not be called: gdb writes the text to mapped memory."""
    lines = gdb.commands(Target(1, 0, 11, True, True), "pass")
    called = [line for line in lines if "))" in line]
    assert all("mmap" in line or "Py_AddPendingCall" in line for line in called)


def test_a_slow_gdb_is_reported_as_slow(monkeypatch, tmp_path):
    slow = tmp_path / "gdb"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(gdb, "_PROBE_SECONDS", 0.1)
    target = Target(os.getpid(), 0, 11, True, True)
    with Door(target, 0.5) as door, pytest.raises(MemdiagError, match="did not attach to process") as caught:
        gdb.enter(target, door)
    assert "the machine may be busy" in caught.value.hint


def test_a_gdb_that_is_older_than_the_processor_does_not_touch_the_program(monkeypatch, tmp_path):
    old = tmp_path / "gdb"
    old.write_text('#!/bin/sh\necho "$@" >> "$0.log"\necho "Couldn\'t write extended state status: Bad address."\n')
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    target = Target(os.getpid(), 0, 11, True, True)
    with Door(target, 5.0) as door, pytest.raises(MemdiagError, match="cannot write the registers") as caught:
        gdb.enter(target, door)
    assert "a newer gdb" in caught.value.hint
    assert f"-p {target.pid}" not in (tmp_path / "gdb.log").read_text()


def test_remote_exec_is_for_python_3_14():
    assert remote_exec.can_enter(Target(1, 0, 14, False, True))
    assert not remote_exec.can_enter(Target(1, 0, 13, False, True))
    assert not remote_exec.can_enter(Target(1, 0, None, False, True))


class _Door:
    script = Path("/nowhere/begin.py")
    seconds = 10.0


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("PermissionError: [Errno 1] Operation not permitted", "debug process|debugged"),
        ("RuntimeError: Remote debugging is not enabled", "Remote debugging is not enabled"),
    ],
)
def test_a_refusal_of_remote_exec_is_passed_on(monkeypatch, sleeping, said, expected):
    """No Python 3.14 is needed: what its program prints is given."""
    refused = subprocess.CompletedProcess([], 1, "", f"Traceback\n{said}\n")
    monkeypatch.setattr(remote_exec.subprocess, "run", lambda *_, **__: refused)
    with pytest.raises(MemdiagError, match=expected):
        remote_exec.enter(target_of(sleeping.pid), _Door())
