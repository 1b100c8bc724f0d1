"""Findings on host memory: pinned rounding, growing workers, saves, the limit of the cgroup (MD151 to MD154)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memdiag
from memdiag.analyzers import growing_workers, host_limit, pinned_rounding, saving_peaks
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from memdiag.trace import schema
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.table import Table
from memdiag.units import GIB, MIB
from tests.analyzers.heaps import Heap
from tests.pythons import cuda_python

PROGRAM = Path(__file__).parents[1] / "recorder" / "programs" / "host_memory.py"
PINNED = {"pinned": 2560, "pinned_used": 2048, "pinned_tensors": 1200, "pinned_blocks": 1920}


def sampled(rows, trace=None, seconds=1.0):
    """Returns a trace with samples of host memory: dicts by column, sizes in MiB, ``when`` by its name."""
    count = len(rows)
    columns = {name: np.full(count, -1, column.dtype) for name, column in schema.HOST_SAMPLES.items()}
    for at, row in enumerate(rows):
        said = {"when": "timer", "step": at, **row}
        columns["time_us"][at] = int(at * seconds * 1e6)
        for name, value in said.items():
            is_size = schema.HOST_SAMPLES[name].unit == "bytes"
            columns[name][at] = schema.OCCASIONS.index(value) if name == "when" else value * (MIB if is_size else 1)
    return replace(trace or Heap().trace(), host_samples=Table(schema.HOST_SAMPLES, columns))


def workers(sizes, **more):
    """Returns a trace whose two workers have these MiB at samples ten seconds apart."""
    return sampled([{"children_rss": size, "num_children": 2, **more} for size in sizes], seconds=10)


def saves(before=900, copies=700, after=1000, **more):
    """Returns a trace of a program that copies its state, saves it, and releases the copies."""
    rows = [{"rss": before}, {"rss": before}, {"rss": before + copies, "peak_rss": before + copies, "when": "save"}]
    peak = before + copies + 100
    rows += [{"rss": before + copies, "peak_rss": peak, "when": "saved"}, {"rss": after, "peak_rss": peak}]
    return sampled([{**row, **more, "step": 200} for row in rows])


def near(used, limit=16_384, **more):
    """Returns a trace whose cgroup has these MiB in use at its fullest sample."""
    full = {"cgroup_used": used, "cgroup_limit": limit, "rss": 5000, "children_rss": 9000, "num_children": 16, **more}
    return sampled([{"cgroup_used": 100, "cgroup_limit": limit}, full])


def found(analyzer, trace):
    return list(analyzer.analyze(trace, Context()))


def evidence(finding):
    return {each.what: each.value for each in finding.evidence}


def test_the_loss_by_rounding_is_that_of_the_counted_tensors():
    (finding,) = found(pinned_rounding, sampled([{"pinned": 8, "pinned_used": 8}, PINNED]))
    assert (finding.code, finding.severity, finding.weight_bytes) == ("MD151", "info", 720 * MIB)
    known = evidence(finding)
    assert known["pinned memory lost by rounding"] == 720 * MIB
    assert known["in use by blocks whose tensors are unknown"] == 128 * MIB
    assert known["cached: pinned, but not in use"] == 512 * MIB
    assert "pinned_max_round_threshold_mb" in finding.fixes[0].change


@pytest.mark.parametrize(
    "change",
    [
        {"pinned_tensors": 1800},  # rounding costs less than a tenth
        {"pinned_tensors": -1, "pinned_blocks": -1},  # nobody has counted
        {"pinned_used": 1800},  # tensors that another library has pinned
    ],
)
def test_without_a_known_loss_there_is_no_finding(change):
    row = {name: value for name, value in (PINNED | change).items() if value >= 0}
    assert not found(pinned_rounding, sampled([row]))


def pinned_blocks(*sizes):
    """Returns a trace whose file lists pinned blocks, but not the sizes before rounding."""
    device = RawDevice(
        device=-1,
        action=np.full(len(sizes), schema.ALLOC, np.int8),
        addr=np.arange(len(sizes), dtype=np.int64) + 1,
        size=np.array(sizes, np.int64),
        has_addresses=False,
    )
    return build_trace(RawTrace("x", "torch-snapshot", "cuda", (RawDevice(0, *empty()),), host=device))


def empty():
    return np.empty(0, np.int8), np.empty(0, np.int64), np.empty(0, np.int64)


def test_blocks_alone_give_an_upper_bound():
    (finding,) = found(pinned_rounding, pinned_blocks(GIB, GIB, 3 * GIB // 2))
    assert "up to" in finding.title
    assert (finding.severity, finding.weight_bytes) == ("info", GIB - 2)  # the block of 1.5 GiB was not rounded
    assert not found(pinned_rounding, pinned_blocks(GIB // 2))


def test_workers_that_keep_growing_are_reported_with_their_rate():
    (finding,) = found(growing_workers, workers(range(1000, 3000, 100), cgroup_used=10_000, cgroup_limit=12_000))
    assert (finding.code, finding.severity) == ("MD152", "warning")  # the limit is less than a day away
    known = evidence(finding)
    assert finding.weight_bytes == 1400 * MIB
    assert known["growth of each worker, on average"] == 700 * MIB
    assert known["growth per training step"] == 100 * MIB
    assert known["hours until the limit at this rate (estimate)"] == round(2000 / 36_000, 1)


@pytest.mark.parametrize(
    "sizes",
    [
        [1000] * 20,
        [100, 500, 900, 1000, 1000, *([1000] * 15)],  # they start
        [*range(1000, 2000, 100), *([2000] * 12)],  # a cache that is full
        [1000, 1500, 2000, 2500, 3000] * 4,  # new workers in every epoch
        [1000, 2000, 3000],  # too few samples
        range(3000, 1000, -100),
    ],
)
def test_workers_that_do_not_keep_growing_are_not_reported(sizes):
    assert not found(growing_workers, workers(sizes))


def test_growth_without_a_limit_is_for_information():
    (finding,) = found(growing_workers, workers(range(1000, 3000, 100)))
    assert finding.severity == "info"


def test_a_save_costs_what_was_there_neither_before_nor_after():
    (finding,) = found(saving_peaks, saves())
    assert (finding.code, finding.severity, finding.weight_bytes) == ("MD153", "info", 700 * MIB)
    known = evidence(finding)
    assert known["highest resident memory of the save"] == 1700 * MIB  # the kernel's count, between two samples
    assert known["lowest resident memory in the ten seconds after the save"] == 1000 * MIB
    assert finding.evidence[0].where == "after step 200"


def test_a_save_near_the_limit_is_a_warning():
    (finding,) = found(saving_peaks, saves(cgroup_limit=1800, cgroup_used=1700))
    assert finding.severity == "warning"


@pytest.mark.parametrize("change", [{"copies": 100}, {"after": 1650}])
def test_a_save_that_needs_little_or_whose_copies_stay_is_not_reported(change):
    assert not found(saving_peaks, saves(**change))


def test_a_save_that_never_ends_is_not_judged():
    rows = [{"rss": 900}, {"rss": 900, "when": "save"}, {"rss": 5000}]
    assert not found(saving_peaks, sampled(rows))


@pytest.mark.parametrize(("used", "severity"), [(15_900, "warning"), (14_500, "info")])
def test_a_cgroup_near_its_limit_is_reported_with_its_parts(used, severity):
    (finding,) = found(host_limit, near(used))
    assert (finding.code, finding.severity) == ("MD154", severity)
    known = evidence(finding)
    assert known["host memory left below the limit"] == (16_384 - used) * MIB
    assert known["resident in 16 child processes; shared pages count in each"] == 9000 * MIB
    assert "workers" in finding.fixes[0].title
    assert "Raise" in finding.fixes[-1].title


def test_a_cgroup_with_room_is_not_reported():
    assert not found(host_limit, near(12_000))
    assert not found(host_limit, sampled([{"rss": 5}]))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system has no /proc")
def test_a_real_program_with_growing_workers_and_a_copied_checkpoint(tmp_path):
    pytest.importorskip("torch")
    program = [sys.executable, str(PROGRAM), "8", str(tmp_path / "x.pt"), "300"]
    record = [sys.executable, "-m", "memdiag", "record", "-q", "--samples", "0.25", "-o", "run", "--", *program]
    done = subprocess.run(record, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    trace = memdiag.load(tmp_path / "run" / "rank0.pkl")
    assert schema.OCCASIONS[trace.host_samples.when[-1]] == "end"
    findings = {each.code: each for each in build_report(trace).findings}
    assert findings["MD153"].weight_bytes == pytest.approx(600 * MIB, rel=0.05)
    growth = evidence(findings["MD152"])
    # 25 MiB in a second in each of two workers on a free machine, less on a busy one: so the samples are the reference
    samples = trace.host_samples
    rows = ((samples.num_children == 2) & (samples.children_rss > 0)).nonzero()[0]  # 0: they have just ended
    first, last = rows[len(rows) // 4], rows[-1]
    seconds = int(samples.time_us[last] - samples.time_us[first]) / 1e6
    hourly = int(samples.children_rss[last] - samples.children_rss[first]) / seconds * 3600
    assert hourly > 25 * MIB * 60
    assert growth["growth per hour at this rate (estimate)"] == pytest.approx(hourly, rel=0.25)
    assert growth["growth per training step"] > 0


def test_a_real_program_that_pins_tensors_on_a_simulated_device(tmp_path):
    python = cuda_python()
    if not python or not sys.platform.startswith("linux"):
        pytest.skip("needs Linux and a Python with torch for CUDA")
    lines = ["import time, torch", "net = torch.nn.Linear(4, 4, device='cuda')", "x = torch.ones(4, device='cuda')"]
    lines += ["held = [torch.empty(80 << 20, dtype=torch.uint8, pin_memory=True) for _ in range(4)]"]
    lines += ["for _ in range(8): net(x); time.sleep(0.25)"]
    record = [sys.executable, "-m", "memdiag", "record", "-q", "--phantom", "cuda:h100-80g", "-o", "run", "--"]
    program = [python, "-c", "\n".join(lines)]
    done = subprocess.run([*record, *program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    (finding,) = found(pinned_rounding, memdiag.load(tmp_path / "run" / "rank0.pkl"))
    known = evidence(finding)
    assert known["blocks of the pinned tensors that the program holds"] == 4 * 128 * MIB
    assert known["pinned memory lost by rounding"] == 4 * 48 * MIB


_CACHE = {"pinned": 34_816, "pinned_used": 33_792, "pinned_tensors": 20_890, "pinned_blocks": 32_768}  # MiB
_LIMIT = {"cgroup_limit": 98_304}

PAGE_EXAMPLES = {
    "MD151": lambda: found(pinned_rounding, sampled([_CACHE])),
    "MD152": lambda: found(growing_workers, workers(range(1000, 3000, 100), cgroup_used=60_000, **_LIMIT)),
    "MD153": lambda: found(saving_peaks, saves(before=9000, copies=7000, after=9500, **_LIMIT)),
    "MD154": lambda: found(host_limit, near(15_900)),
}
