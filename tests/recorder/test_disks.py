"""Recording on a full or read-only disk, for which a test mounts a small file system where that is allowed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import memdiag

ROOT = Path(__file__).parents[2]
# Mounts a disk of size $0 at $1 and runs the command. Only this process and its children see the mount, so its files
# are copied to $2 afterwards.
ON_A_DISK = (
    'mount -t tmpfs -o size=$0 memdiag "$1" || exit 99; disk=$1; kept=$2; shift 2; "$@"; end=$?; cp -R "$disk"/. '
    '"$kept"; exit $end'
)
WAYS = (["unshare", "-m"], ["unshare", "-Urm"])


@pytest.fixture(scope="session")
def apart(tmp_path_factory):
    """Returns the prefix of a command that runs in its own mount namespace, so that it may mount disks."""
    place = tmp_path_factory.mktemp("disk")
    for way in WAYS:
        try:
            done = subprocess.run([*way, "mount", "-t", "tmpfs", "memdiag", place], capture_output=True, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return way
    pytest.skip("needs to mount a small disk: root, or namespaces of users (unshare -Urm)")


@pytest.fixture
def disk(tmp_path):
    """Returns the mount point; a folder ``kept`` next to it receives the files of the disk."""
    for name in ("disk", "kept"):
        (tmp_path / name).mkdir()
    return tmp_path / "disk"


def on_a_disk(apart, disk, size="400k"):
    return [*apart, "sh", "-c", ON_A_DISK, size, str(disk), str(disk.with_name("kept"))]


@pytest.mark.parametrize(("way", "why"), [("filled", "No space left on device"), ("locked", "Read-only file system")])
def test_training_continues_when_the_disk_becomes_unwritable(cpu, apart, disk, way, why):
    """When the disk becomes full or read-only, training continues and the last written trace stays intact."""
    cpu.python = on_a_disk(apart, disk) + cpu.python
    settings = {"every": 1, "folder": str(disk / "run")}
    with_us = cpu("small.py", way, settings=settings, env={"DISK": str(disk)})
    without = cpu("small.py", way, recorded=False, env={"DISK": str(disk)})
    assert with_us.done.stdout == without.done.stdout
    (warning,) = [line for line in with_us.done.stderr.splitlines() if line.startswith("memdiag:")]
    assert f"rank0.pkl could not be written: {why}; its earlier version is still there" in warning
    kept = disk.with_name("kept") / "run"
    assert memdiag.load(kept / "rank0.pkl").num_events
    assert list(kept.rglob("*.part")) == []


def test_training_runs_on_a_disk_that_is_full_from_the_start(cpu, apart, disk):
    cpu.python = on_a_disk(apart, disk, "4k") + cpu.python
    with_us = cpu("small.py", "steps", settings={"every": 1, "folder": str(disk / "run")})
    assert with_us.done.stdout.split()[0] == "ready"
    assert "Traceback" not in with_us.done.stderr
    assert "could not be written" in with_us.done.stderr
    assert list(disk.with_name("kept").rglob("*.pkl*")) == []


def test_an_unwritable_folder_is_an_error_before_the_program_starts(apart, disk):
    """An unwritable folder is reported before the program starts, not after it has run for hours."""
    script = f'mount -t tmpfs -o ro memdiag "{disk}" && cd "{disk}" && exec "$@"'
    command = [sys.executable, "-m", "memdiag", "record", "--", sys.executable, "-c", "print(1)"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*apart, "sh", "-c", script, "sh", *command], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Read-only file system" in done.stderr
    assert "memdiag record -o DIR" in done.stderr
    elsewhere = [*command[:4], "-o", str(disk.with_name("kept")), *command[4:]]
    done = subprocess.run(
        [*apart, "sh", "-c", script, "sh", *elsewhere], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stdout) == (0, "1\n")


TRAINS = """
import sys
import torch

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(400):
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
sys.exit(7)
"""


def recorded_on(apart, disk, size, *options, redact=False):
    """Runs ``memdiag record`` on a disk with a training that exits with status 7; returns its stderr."""
    pytest.importorskip("torch")
    program = disk.with_name("train.py")
    program.write_text(TRAINS)
    command = [
        sys.executable,
        "-m",
        "memdiag",
        *["--redact"] * redact,
        "record",
        *options,
        "--",
        sys.executable,
        str(program),
    ]
    inside = [*on_a_disk(apart, disk, size), "sh", "-c", 'cd "$0" && exec "$@"', str(disk), *command]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(inside, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 7, done.stderr
    assert "Traceback" not in done.stderr
    left = disk.with_name("kept")
    assert [
        path for path in left.rglob("*") if path.name.endswith((".part", ".redacted")) or path.name.startswith(".room")
    ] == []
    for trace in left.rglob("*.pkl"):
        assert memdiag.load(trace).num_events
    return done.stderr


@pytest.mark.parametrize(("size", "why"), [("4k", "could not write to "), ("40k", "could not be written: ")])
def test_a_summary_on_a_full_disk_keeps_the_exit_status_and_says_why(apart, disk, size, why):
    said = recorded_on(apart, disk, size, "-o", "run")
    assert list(disk.with_name("kept").rglob("*.pkl")) == []
    (line,) = [line for line in said.splitlines() if line.startswith("memdiag: nothing was recorded")]
    assert why in line
    assert "No space left on device" in line


def test_a_short_name_that_cannot_be_written_leaves_the_trace_in_the_run(apart, disk):
    """If the short name cannot be written, the trace in the run folder is intact and the summary names that folder."""
    run = disk.with_name("run")
    said = recorded_on(apart, disk, "8k", "-o", str(run))
    assert memdiag.load(run / "rank0.pkl").num_events
    assert "trace.pkl could not be written: No space left on device; the trace is in the directory of the run" in said
    assert f"memdiag analyze {run}" in said
    assert list(disk.with_name("kept").iterdir()) == []


def test_a_trace_that_cannot_be_redacted_on_a_full_disk_is_named(apart, disk):
    recorded_on(apart, disk, "2m", "-o", "run")
    (trace,) = disk.with_name("kept").rglob("rank0.pkl")
    room = trace.stat().st_size * 3 // 2  # enough for the trace, but not for a redacted copy as well
    for path in sorted(disk.with_name("kept").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    said = recorded_on(apart, disk, str(room), "-o", "run", redact=True)
    assert (
        "rank0.pkl could not be redacted: [Errno 28] No space left on device; the run still contains paths and names"
        in said
    )
    assert not list(disk.with_name("kept").glob("trace*.pkl"))
