"""A trainer and an inference engine take turns on one simulated card: bench/programs/colocated.py, two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memdiag.analyzers.report import build_report
from memdiag.runs.cards import shared_cards, uses_of
from memdiag.sources import load
from memdiag.units import GIB
from tests.forking import memdiag_command
from tests.pythons import cuda_python, npu_command

PROGRAM = Path(__file__).parents[2] / "bench" / "programs" / "colocated.py"
KEEP = {"cuda": "4.11,11.6,25", "npu": "1,2,4"}  # GiB
DEVICES = {"cuda": ("cuda:h100-80g", cuda_python), "npu": ("npu:910b-64g", npu_command)}


@pytest.fixture(scope="module", params=("cuda", "npu"))
def run(request, tmp_path_factory):
    """Records the two processes; returns the backend, the end of the command, and the traces, the trainer's first."""
    backend = request.param
    device, python_of = DEVICES[backend]
    python = python_of()
    if not python or not sys.platform.startswith("linux"):
        pytest.skip(f"needs Linux and a Python with torch for {backend}")
    folder = tmp_path_factory.mktemp("run") / "run"
    command = [python, str(PROGRAM), backend, "--keep", KEEP[backend]]
    record = [*memdiag_command(), "record", "--phantom", device, "-o", str(folder), "--"]
    done = subprocess.run([*record, *command], capture_output=True, text=True, cwd=folder.parent, check=False)
    paths = sorted(folder.glob("rank*.pkl"))
    assert len(paths) == 2, done.stderr
    traces = [load(path) for path in paths]  # numbered in the order in which the processes write their files
    return backend, done, sorted(traces, key=lambda trace: "awake" in trace.recorded.names)


def test_the_parts_of_the_card_sum_to_it_at_every_mark_to_the_byte(run):
    _, _, traces = run
    for trace in traces:
        (device,) = build_report(trace, replay=False).devices
        assert len(device.card_timeline) > 5
        for moment in device.card_timeline:
            parts = (moment.own_outside_bytes, moment.other_processes_bytes, moment.unknown_bytes, moment.free_bytes)
            assert None not in parts  # the driver tells the processes apart
            assert moment.reserved_bytes + sum(parts) == moment.total_bytes
            assert moment.unknown_bytes == 0
    (card,) = shared_cards({rank: uses_of(trace) for rank, trace in enumerate(traces)})
    marks = [moment for moment in card.moments if moment.when == "mark"]
    assert len(marks) >= 12
    contexts = {moment.outside_bytes for moment in marks}
    assert len(contexts) == 1  # the runtimes of two processes, and nothing else
    for moment in marks:
        assert sum(moment.reserved_bytes) + moment.outside_bytes + moment.free_bytes == card.total_bytes


def test_hand_offs_show_what_the_engine_kept(run):
    backend, _, traces = run
    (card,) = shared_cards({rank: uses_of(trace) for rank, trace in enumerate(traces)})
    kept = [hand_off.kept_bytes / GIB for hand_off in card.hand_offs if hand_off.to_rank == 0]
    assert [round(size, 1) for size in kept] == [round(float(size), 1) for size in KEEP[backend].split(",")]


def test_memory_kept_in_sleep_is_a_finding_of_the_engine(run):
    backend, _, traces = run
    (finding,) = [finding for finding in build_report(traces[1], replay=False).findings if finding.code == "MD303"]
    last = float(KEEP[backend].split(",")[-1])
    assert finding.evidence[0].value / GIB == pytest.approx(last, abs=0.6)
    assert finding.severity == "warning"
    assert any("keep_old_weights" in evidence.where for evidence in finding.evidence)


def test_the_trainer_runs_out_of_memory_with_the_real_numbers(run):
    backend, done, traces = run
    if backend == "npu":
        assert done.returncode == 0, done.stderr  # the kept memory leaves enough for the trainer
        return
    (card,) = shared_cards({rank: uses_of(trace) for rank, trace in enumerate(traces)})
    (failure,) = card.failures
    assert (failure.rank, failure.requested_bytes) == (0, 15 * GIB)
    assert failure.moment.free_bytes < failure.requested_bytes
    assert failure.moment.reserved_bytes[1] >= 25 * GIB
    assert "of which 13.02 GiB is free" in done.stderr
    assert f"Process {card.processes[1].pid} has 25.50 GiB memory in use" in done.stderr


def test_the_first_advice_names_the_engine_on_every_surface(run):
    backend, done, traces = run
    if backend == "npu":
        pytest.skip("the trainer does not run out of memory")
    trainer, engine = (Path(trace.path) for trace in traces)
    for text in (done.stderr, memdiag("analyze", trainer), memdiag("oom", "--from-trace", trainer)):
        words = " ".join(text.split())
        number = engine.stem.removeprefix("rank")
        assert "Release memory in the other process of this run on the card: rank" in words
        assert f"rank {number} held 25.00 GiB at that moment" in words
        assert engine.name in words
        assert "nvidia-smi" not in text


def memdiag(*arguments):
    """Returns what a command of memdiag prints."""
    done = subprocess.run(
        [*memdiag_command(), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "400"},
    )
    return done.stdout
