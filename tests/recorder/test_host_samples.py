"""Samples of host memory come from /proc, cgroups and PyTorch, and are shown in the report."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import memdiag
from memdiag.analyzers.report import build_report
from memdiag.recorder import cgroup, host_samples
from memdiag.recorder.host_samples import HostSamples
from memdiag.recorder.launch import ProgramEnd
from memdiag.recorder.mps_counters import mps_memory
from memdiag.render.analyze import full
from memdiag.render.analyze import json as as_json
from memdiag.runs.summary import host_limit
from memdiag.trace import schema

MIB = 1 << 20
pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system has no /proc")
STATS = {"allocated_bytes": {"current": 8 * MIB}, "active_bytes": {"current": 3 * MIB}}


def torch_with(stats=None):
    counters = {} if stats is None else {"_cuda_hostMemoryStats": lambda: stats}
    return SimpleNamespace(_C=SimpleNamespace(**counters))


def test_the_process_and_its_children_are_counted():
    with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1) as child:
        child.stdout.readline()
        found = HostSamples(torch_with()).take("start", ())
        child.communicate(b"\n")
    assert found["rss_bytes"] > MIB
    assert found["num_children"] >= 1
    assert found["children_rss_bytes"] > 0
    assert found["pss_bytes"] > 0
    assert not {"pinned_bytes", "pinned_used_bytes"} & found.keys()


def test_pinned_memory_is_read_once_a_device_is_in_use():
    source = HostSamples(torch_with(STATS))
    assert "pinned_bytes" not in source.take("start", ())
    found = source.take("oom", (0,))
    assert (found["pinned_bytes"], found["pinned_used_bytes"]) == (8 * MIB, 3 * MIB)


def test_samples_at_phases_are_rare(monkeypatch):
    clock = iter([100.0, 100.1, 100.2, 100.3])
    monkeypatch.setattr(host_samples.time, "perf_counter", lambda: next(clock, 101.0))
    source = HostSamples(torch_with())
    assert source.take("start", ()) is not None
    source._last = 100.2
    assert source.take("phase", ()) is None
    assert source.take("end", ()) is not None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {
                "/proc/self/cgroup": "0::/pod/box\n",
                "/sys/fs/cgroup/pod/memory.max": "max\n",
                "/sys/fs/cgroup/pod/box/memory.max": "4000\n",
                "/sys/fs/cgroup/pod/box/memory.current": "3000\n",
                "/sys/fs/cgroup/pod/box/memory.stat": "anon 1\ninactive_file 500\n",
            },
            {"cgroup_used_bytes": 2500, "cgroup_limit_bytes": 4000},
        ),
        (
            {
                "/proc/self/cgroup": "5:memory:/a/b\n1:cpu:/\n",
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "900",
                "/sys/fs/cgroup/memory/a/memory.usage_in_bytes": "100",
                "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712",
                "/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": "90",
            },
            {"cgroup_used_bytes": 100, "cgroup_limit_bytes": 900},
        ),
        ({"/proc/self/cgroup": "0::/\n"}, {}),
        ({}, {}),
    ],
)
def test_the_lowest_limit_of_the_cgroups_is_used(monkeypatch, files, expected):
    monkeypatch.setattr(cgroup, "text_of", files.get)
    found = HostSamples(torch_with()).take("start", ())
    assert {name: size for name, size in found.items() if name.startswith("cgroup")} == expected


@pytest.mark.parametrize(
    ("line", "folder", "file"),
    [
        ("0::/box\n", "/sys/fs/cgroup/box", "memory.events"),
        ("4:memory:/box\n", "/sys/fs/cgroup/memory/box", "memory.oom_control"),
    ],
)
def test_kills_at_the_limit_are_counted(monkeypatch, line, folder, file):
    limit = "memory.max" if line.startswith("0") else "memory.limit_in_bytes"
    files = {"/proc/self/cgroup": line, f"{folder}/{limit}": "4000\n", f"{folder}/{file}": "under_oom 0\noom_kill 3\n"}
    monkeypatch.setattr(cgroup, "text_of", files.get)
    found = cgroup.find()
    assert (cgroup.limit_of(found), cgroup.kills_in(found)) == (4000, 3)


def test_a_kill_below_the_cgroup_with_the_limit_is_counted(monkeypatch):
    root = "/sys/fs/cgroup/memory"
    files = {
        "/proc/self/cgroup": "4:memory:/job/step\n",
        f"{root}/job/memory.limit_in_bytes": "4000\n",
        f"{root}/job/memory.oom_control": "oom_kill 0\n",
        f"{root}/job/step/memory.oom_control": "oom_kill 2\n",
    }
    monkeypatch.setattr(cgroup, "text_of", files.get)
    assert cgroup.kills_in(cgroup.find()) == 2


def test_a_kill_at_the_limit_is_said():
    assert host_limit(ProgramEnd(-9, 1.0)) == []
    (line,) = host_limit(ProgramEnd(-9, 1.0, host_kills=1, host_limit_bytes=4 * MIB))
    assert "4.00 MiB" in line
    assert "MD154" in line


def recording(tmp_path, *hosts):
    samples = [{"t_us": 10 + at, "when": "timer", "step": at, "host": host} for at, host in enumerate(hosts)]
    path = tmp_path / "x.pickle"
    content = {"segments": [], "device_traces": [[]], "memdiag": {"format": 1, "backend": "cuda", "samples": samples}}
    path.write_bytes(pickle.dumps(content))
    return memdiag.load(path)


def test_the_report_shows_start_peak_and_end(tmp_path):
    sizes = [{"rss_bytes": size * MIB, "children_rss_bytes": 7 * MIB, "num_children": 2} for size in (100, 300, 200)]
    limits = {"cgroup_used_bytes": 5 * MIB, "cgroup_limit_bytes": 9 * MIB}
    trace = recording(tmp_path, *(size | limits for size in sizes))
    report = build_report(trace)
    text = full.render(report)
    for word in ("Host memory over the run", "100.00 MiB  300.00 MiB  200.00 MiB", "2 child processes", "9.00 MiB"):
        assert word in text
    shown = json.loads(as_json.render(report))["host"]["timeline"]
    assert [moment["rss_bytes"] for moment in shown] == [100 * MIB, 300 * MIB, 200 * MIB]
    assert shown[0]["pss_bytes"] is None


def test_many_samples_are_thinned_to_the_fullest(tmp_path):
    trace = recording(tmp_path, *({"rss_bytes": size} for size in (*range(1000), 5_000_000, *range(1000))))
    shown = build_report(trace).host.timeline
    assert len(shown) <= 200
    assert max(moment.rss_bytes for moment in shown) == 5_000_000


@pytest.mark.parametrize("host", [None, 7, [], {"rss_bytes": "x", "pinned_bytes": -5, "shm_used_bytes": 1 << 70}])
def test_strange_samples_are_unknown(tmp_path, host):
    samples = recording(tmp_path, host).host_samples
    assert all((samples[name] == -1).all() for name in schema.HOST_SAMPLES if name not in {"time_us", "when", "step"})


def torch_with_mps(**counters):
    """Returns a module with counters of MPS, whose names are those of the real torch.mps."""
    real = pytest.importorskip("torch").mps
    assert all(hasattr(real, name) for name in counters)
    mps = SimpleNamespace(**{name: lambda size=size: size for name, size in counters.items()})
    return SimpleNamespace(mps=mps, backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: True)))


def test_counters_of_mps_are_part_of_host_memory():
    counters = {"current_allocated_memory": MIB, "driver_allocated_memory": 3 * MIB, "recommended_max_memory": 9 * MIB}
    found = HostSamples(torch_with_mps(**counters)).take("start", ())
    assert [found[f"mps_{name}_bytes"] for name in ("used", "driver", "limit")] == [MIB, 3 * MIB, 9 * MIB]


def test_a_counter_that_an_older_torch_lacks_is_unknown():
    found = HostSamples(torch_with_mps(driver_allocated_memory=MIB)).take("start", ())
    assert {key for key in found if key.startswith("mps_")} == {"mps_driver_bytes"}


def test_the_real_torch_without_mps_has_no_counters():
    torch = pytest.importorskip("torch")
    if torch.backends.mps.is_available():
        pytest.skip("this machine has MPS")
    assert mps_memory(torch) == {}


def test_the_report_shows_the_counters_of_mps(tmp_path):
    sizes = [
        {"mps_used_bytes": size * MIB, "mps_driver_bytes": 300 * MIB, "mps_limit_bytes": 900 * MIB} for size in (1, 2)
    ]
    report = build_report(recording(tmp_path, *sizes))
    text = " ".join(full.render(report).split())
    assert "1.00 MiB 2.00 MiB 2.00 MiB tensors on MPS" in text
    assert "300.00 MiB allocated by Metal (recommended maximum: 900.00 MiB)" in text
    assert json.loads(as_json.render(report))["host"]["timeline"][1]["mps_used_bytes"] == 2 * MIB
