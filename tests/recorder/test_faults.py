"""Faults during a recording: folders that disappear, child processes, and programs that change the recorder's hooks.

In every case the program prints the same and ends in the same way as without memdiag, and every trace file is complete.
bench/record_faults.py kills a recording a hundred times.
"""

from __future__ import annotations

import signal

import pytest

import memdiag

WAYS = {"end": 5, "abort": -signal.SIGABRT}


def printed_by_the_profiler(run):
    """Returns the lines that PyTorch's profiler prints, without their leading times and process numbers."""
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
def test_recording_does_not_change_the_program(cpu, way):
    """The program prints the same, exits in the same way and is recorded.

    ``annotated``: PyTorch writes into freed memory if an annotation outlives the profiler that saw its start.
    """
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
def test_a_failed_write_does_not_stop_the_program(cpu, way):
    """The program continues if the folder is removed or the disk is full, and a complete earlier trace remains."""
    folder = cpu.folder / "1" / "run"
    with_us = cpu("small.py", way, settings={"every": 1}, env={"FOLDER": str(folder)})
    without = cpu("small.py", way, recorded=False)
    assert with_us.done.stdout == without.done.stdout
    assert "could not be written" in with_us.done.stderr
    assert "Traceback" not in with_us.done.stderr
    if way == "full":
        assert memdiag.load(with_us.path()).num_events
        assert list(with_us.folder.glob("*.part")) == []


def test_signals_inside_a_profiler_callback_are_handled_after_it(cpu):
    """Signals that arrive inside a callback of PyTorch's profiler are handled shortly after it.

    The profiler holds its lock there, so stopping it would wait forever.
    """
    run = cpu("small.py", "looked_at", "3", settings={"every": 1}, status=-signal.SIGTERM)
    assert "SIGUSR1" in run.done.stdout
    assert "not ended" not in run.done.stdout
    assert memdiag.load(run.path()).num_events


def test_repeated_requests_for_a_file_do_not_nest(cpu):
    """Repeated SIGUSR1 signals, also during the writing of a file, do not nest and do not change the program."""
    folder = cpu.folder / "1" / "run"
    with_us = cpu("small.py", "pestered", "30", settings={"every": 1}, env={"FOLDER": str(folder)})
    without = cpu("small.py", "pestered", "30", recorded=False)
    assert (with_us.done.stdout, with_us.done.stderr) == (without.done.stdout, without.done.stderr)
    assert with_us.status()["steps"] == 30
    assert memdiag.load(with_us.path()).num_events
