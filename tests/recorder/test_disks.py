"""A disk that is full, and one that cannot be written to: real ones, small and mounted for the time of a test where that is allowed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import memdiag

ROOT = Path(__file__).parents[2]
# A disk of that size at $1; afterwards what is on it is at $2, since the disk is there for this process and its children only.
ON_A_DISK = 'mount -t tmpfs -o size=$0 memdiag "$1" || exit 99; disk=$1; kept=$2; shift 2; "$@"; end=$?; cp -R "$disk"/. "$kept"; exit $end'
WAYS = (["unshare", "-m"], ["unshare", "-Urm"])


@pytest.fixture(scope="session")
def apart(tmp_path_factory):
    """Returns the words before a command that may mount disks for itself."""
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
    """The place of a disk, and where what was on it is kept."""
    for name in ("disk", "kept"):
        (tmp_path / name).mkdir()
    return tmp_path / "disk"


def on_a_disk(apart, disk, size="400k"):
    return [*apart, "sh", "-c", ON_A_DISK, size, str(disk), str(disk.with_name("kept"))]


@pytest.mark.parametrize(("way", "why"), [("filled", "No space left on device"), ("locked", "Read-only file system")])
def test_a_disk_that_takes_no_more(cpu, apart, disk, way, why):
    """What was written before stays whole, and the training goes on."""
    cpu.python = on_a_disk(apart, disk) + cpu.python
    settings = {"every": 1, "folder": str(disk / "run")}
    with_us = cpu("small.py", way, settings=settings, env={"DISK": str(disk)})
    without = cpu("small.py", way, recorded=False, env={"DISK": str(disk)})
    assert with_us.done.stdout == without.done.stdout
    (warning,) = [line for line in with_us.done.stderr.splitlines() if line.startswith("memdiag:")]
    assert f"rank0.pkl could not be written: {why}; what was written before is still there" in warning
    kept = disk.with_name("kept") / "run"
    assert memdiag.load(kept / "rank0.pkl").num_events
    assert list(kept.rglob("*.part")) == []


def test_a_disk_full_from_the_beginning(cpu, apart, disk):
    cpu.python = on_a_disk(apart, disk, "4k") + cpu.python
    with_us = cpu("small.py", "steps", settings={"every": 1, "folder": str(disk / "run")})
    assert with_us.done.stdout.split()[0] == "ready"
    assert "Traceback" not in with_us.done.stderr
    assert "could not be written" in with_us.done.stderr
    assert list(disk.with_name("kept").rglob("*.pkl*")) == []


def test_a_run_that_cannot_be_written_does_not_begin(apart, disk):
    """Said before the program has run for hours."""
    script = f'mount -t tmpfs -o ro memdiag "{disk}" && cd "{disk}" && exec "$@"'
    command = [sys.executable, "-m", "memdiag", "record", "--", sys.executable, "-c", "print(1)"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*apart, "sh", "-c", script, "sh", *command], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Read-only file system" in done.stderr
    assert "memdiag record -o DIR" in done.stderr
    elsewhere = [*command[:4], "-o", str(disk.with_name("kept")), *command[4:]]
    done = subprocess.run([*apart, "sh", "-c", script, "sh", *elsewhere], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (0, "1\n")
