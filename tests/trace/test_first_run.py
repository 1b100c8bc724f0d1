"""Before code is compiled, small inputs run as plain Python while a background process compiles for later runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from memdiag.trace import compiled, first_run

pytestmark = pytest.mark.skipif(
    compiled.numba is None or not hasattr(os, "posix_spawn"), reason="needs numba, and a system that starts processes"
)

LOOP = """
import numpy as np
from memdiag.trace import compiled

@compiled.njit_part
def square(x):
    return x * x

@compiled.njit(plain_seconds=1e-6)
def squares(column):
    total = 0
    for each in column:
        total += square(each)
    return total
"""
PROGRAM = """
import sys
import numpy as np
from memdiag.trace import compiled, first_run
import loop
first_run.turn_on(lambda: print("background"))
kind, count = sys.argv[1:]
print(loop.squares(np.arange(int(count), dtype=kind)), "compiled" if loop.squares.dispatcher.signatures else "plain")
print(*first_run._state.jobs, file=open("jobs", "w"))
"""
_MOST_SECONDS = 300.0  # on a busy machine


@pytest.fixture
def installation(tmp_path):
    """Returns a new installation: its folder, and functions to run a command, wait for compiling and delete code."""
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "tmp").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment.pop(first_run.WHEN, None)
    environment |= {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "tmp")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tmp_path), *sys.path]))
    notes = tmp_path / "tmp" / f"memdiag-{os.getuid()}"

    def run(kind="int64", count=10, **more):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, kind, str(count)],
            cwd=tmp_path,
            env={**environment, **more},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    def wait():
        began = time.monotonic()
        while list(notes.glob("compiling-*")):
            assert time.monotonic() - began < _MOST_SECONDS
            time.sleep(0.05)

    def lose_code():
        for each in (tmp_path / "cache").rglob("*.nb?"):
            each.unlink()

    return SimpleNamespace(run=run, wait=wait, lose_code=lose_code, folder=tmp_path)


def test_later_runs_find_compiled_code(installation):
    assert installation.run() == ["285", "plain", "background"]
    installation.wait()
    assert installation.run() == ["285", "compiled"]


def test_each_type_of_arguments_is_compiled(installation):
    installation.run()
    installation.wait()
    assert installation.run("float64") == ["285.0", "plain", "background"]
    installation.wait()
    assert installation.run("float64") == ["285.0", "compiled"]
    assert installation.run() == ["285", "compiled"]


def test_one_background_process_is_enough(installation):
    """A note about a running background process prevents a second one."""
    installation.run()
    note = Path((installation.folder / "jobs").read_text().strip())
    installation.wait()
    installation.lose_code()
    note.touch()
    assert installation.run() == ["285", "plain"]


def test_a_run_waits_for_the_compiler_if_the_background_process_was_killed(installation):
    installation.run()
    note = Path((installation.folder / "jobs").read_text().strip())
    installation.wait()
    installation.lose_code()
    note.touch()
    long_ago = time.time() - first_run.TOO_LONG - 1
    os.utime(note, (long_ago, long_ago))
    assert installation.run() == ["285", "compiled"]
    assert not note.exists()
    installation.lose_code()
    assert installation.run() == ["285", "plain", "background"]
    installation.wait()


def test_a_large_column_is_not_read_as_plain_python(installation):
    assert installation.run(count=10_000_000)[1:] == ["compiled"]


def test_the_user_can_ask_for_compiled_code_at_once(installation):
    assert installation.run(MEMDIAG_COMPILE="now") == ["285", "compiled"]


@pytest.mark.parametrize("cache", ["cache", None])
def test_a_run_waits_if_there_is_no_folder_for_notes(installation, cache):
    (installation.folder / "tmp" / f"memdiag-{os.getuid()}").mkdir(
        mode=0o755
    )  # not private, so no notes are kept there
    (installation.folder / "__pycache__").touch()  # a file, so that no folder of this name can be created
    folder = {} if cache else {"NUMBA_CACHE_DIR": "/dev/null/x", "HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}
    for _ in range(2):
        assert installation.run(**folder, PYTHONDONTWRITEBYTECODE="1") == ["285", "compiled"]


def test_libraries_start_no_background_process(monkeypatch):
    """Only the command line starts a background process, never a library or a recorded process."""
    assert not first_run.is_on()
    monkeypatch.setenv(first_run.WHEN, "now")
    first_run.turn_on(lambda: None)
    assert not first_run.is_on()


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((3, 4), np.int32),
        np.zeros((3, 4), np.int32).T,
        np.zeros((3, 4), np.int8)[:, 1],
        np.zeros(0, np.uint64),
        np.zeros(2, [("one", np.int64), ("other", np.int64)])[1],
        np.frombuffer(b"read only", np.uint8),
        (1, True, 2.5, None, (np.zeros(3),)),
    ],
)
def test_stand_ins_have_the_type_of_arguments(value):
    (found,) = first_run.job_of("module", "name", "place", (value,)).stand_ins()
    assert compiled.numba.typeof(found) == compiled.numba.typeof(value)
