"""What may go wrong around a recording: folders that vanish, processes of every kind, programs that do what the recorder does.

Whatever it is, the program prints and ends as it would without memdiag, and a file that has its name is whole.
bench/record_faults.py kills a recording a hundred times.
"""

from __future__ import annotations

import signal

import pytest

import memdiag

WAYS = {"end": 5, "abort": -signal.SIGABRT}


def printed_by_the_profiler(run):
    """Returns the ends of the lines that PyTorch's profiler prints: before them stand times and process numbers."""
    return [
        line.rpartition("] ")[2] for line in run.done.stderr.splitlines() if line.startswith(("USDT", "STAGE", "INFO"))
    ]


@pytest.mark.parametrize(
    "way",
    [
        "end",
        "abort",
        "fork",
        "processes-fork",
        "processes-spawn",
        "loader-fork",
        "loader-spawn",
        "patched",
        "annotated",
        "profiled",
    ],
)
def test_the_program_is_as_without(cpu, way):
    """``annotated``: PyTorch writes into freed memory where an annotation outlives the profiler that saw it begin."""
    status = WAYS.get(way, 0)
    with_us = cpu("small.py", way, settings={"every": 1}, status=status)
    without = cpu("small.py", way, recorded=False, status=status)
    assert with_us.done.stdout == without.done.stdout
    ours = [line for line in with_us.done.stderr.splitlines() if line.startswith("memdiag:")]
    assert len(ours) == (way in {"annotated", "profiled"}), ours
    assert printed_by_the_profiler(with_us) == printed_by_the_profiler(without)
    number = 3 if way == "processes-spawn" else 1
    assert sorted(path.name for path in with_us.folder.glob("rank*.pkl")) == [
        f"rank{rank}.pkl" for rank in range(number)
    ]
    for rank in range(number):
        assert memdiag.load(with_us.path(rank)).num_events


@pytest.mark.parametrize("way", ["removed", "full"])
def test_what_cannot_be_written_does_not_stop_the_program(cpu, way):
    """The folder is taken away, or nothing more can be written; what was written before stays."""
    folder = cpu.folder / "1" / "run"
    with_us = cpu("small.py", way, settings={"every": 1}, env={"FOLDER": str(folder)})
    without = cpu("small.py", way, recorded=False)
    assert with_us.done.stdout == without.done.stdout
    assert "could not be written" in with_us.done.stderr
    assert "Traceback" not in with_us.done.stderr
    if way == "full":
        assert memdiag.load(with_us.path()).num_events
        assert list(with_us.folder.glob("*.part")) == []


def test_a_signal_while_the_profiler_looks_at_a_call(cpu):
    """Its lock is held then, and to stop it would wait for ever: the file is written in a moment, and so does the program end."""
    run = cpu("small.py", "looked_at", "3", settings={"every": 1}, status=-signal.SIGTERM)
    assert "SIGUSR1" in run.done.stdout
    assert "not ended" not in run.done.stdout
    assert memdiag.load(run.path()).num_events


def test_asked_for_files_at_any_moment(cpu):
    """SIGUSR1 again and again, also while a file is being written: the requests do not nest."""
    folder = cpu.folder / "1" / "run"
    with_us = cpu("small.py", "pestered", "30", settings={"every": 1}, env={"FOLDER": str(folder)})
    without = cpu("small.py", "pestered", "30", recorded=False)
    assert (with_us.done.stdout, with_us.done.stderr) == (without.done.stdout, without.done.stderr)
    assert with_us.status()["steps"] == 30
    assert memdiag.load(with_us.path()).num_events
