"""An accelerator whose allocator keeps no history is recorded by its counters over time."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from memdiag.recorder.backends.counters import Counters, CounterSamples, counters_of, kind_of
from memdiag.recorder.devices import FirstUse
from memdiag.recorder.sample_sources import sources_for
from memdiag.recorder.sampling import Sampler
from memdiag.sources import load
from memdiag.trace import schema
from tests.forking import memdiag_command
from tests.pythons import cuda_python

torch = pytest.importorskip("torch")
MIB = 1 << 20
STATS = {
    "reserved_bytes.all.current": 6 * MIB,
    "reserved_bytes.all.peak": 9 * MIB,
    "allocated_bytes.all.current": 4 * MIB,
    "allocated_bytes.all.peak": 8 * MIB,
}
PROGRAM = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    model(torch.ones(4096, 512, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated())
"""


def answering(real, answer):
    """Returns a function with the signature of a real one."""

    def call(*args, **kwargs):
        inspect.signature(real).bind(*args, **kwargs)
        return answer() if callable(answer) else answer

    return call


def accelerator(kind="mtia", stats=STATS, *, info=(50 * MIB, 64 * MIB), is_initialized=True):
    """Returns a torch whose torch.accelerator has the functions of the real one."""
    real = torch.accelerator

    def refuse():
        raise RuntimeError("not a DeviceAllocator")

    found = SimpleNamespace(
        current_accelerator=answering(real.current_accelerator, SimpleNamespace(type=kind)),
        device_count=answering(real.device_count, 1),
        memory_stats=answering(real.memory_stats, refuse if stats is None else stats),
        get_memory_info=answering(real.get_memory_info, refuse if info is None else info),
    )
    inner = SimpleNamespace(_accelerator_isAllocatorInitialized=lambda: is_initialized)
    return SimpleNamespace(accelerator=found, _C=inner)


def without_accelerator_statistics():
    """Returns a torch as old as 2.6, in which only torch.mps has counters."""
    module = accelerator("mps", None, info=None)
    del module._C._accelerator_isAllocatorInitialized
    module.mps = SimpleNamespace(
        current_allocated_memory=answering(torch.mps.current_allocated_memory, 3 * MIB),
        driver_allocated_memory=answering(torch.mps.driver_allocated_memory, 5 * MIB),
    )
    return module


def test_counters_and_peaks_come_from_torch_accelerator():
    counters = Counters(accelerator(), "mtia")
    assert counters.is_used()
    assert counters.row(0) == {
        "reserved_bytes": 6 * MIB,
        "allocated_bytes": 4 * MIB,
        "reserved_peak_bytes": 9 * MIB,
        "allocated_peak_bytes": 8 * MIB,
    }
    assert counters.driver_memory(0) == (50 * MIB, 64 * MIB)


def test_an_older_torch_has_counters_in_the_module_of_the_device():
    counters = Counters(without_accelerator_statistics(), "mps")
    assert counters.is_used()
    assert counters.row(0) == {"reserved_bytes": 5 * MIB, "allocated_bytes": 3 * MIB}
    assert not counters.knows_card()


def test_an_allocator_without_statistics_is_never_in_use():
    def refuse(_):
        raise RuntimeError("no statistics")

    module = accelerator("hpu", None)
    module.hpu = SimpleNamespace(memory_reserved=refuse)
    assert not Counters(module, "hpu").is_used()


def test_the_card_is_sampled_only_if_the_driver_reports_free_memory():
    names = [source.name for source in sources_for(Counters(accelerator(), "mtia"), lambda: 0)]
    assert names[:2] == ["counters", "card"]
    assert "card" not in [source.name for source in sources_for(Counters(accelerator(info=None), "mtia"), lambda: 0)]


@pytest.mark.parametrize(
    ("kind", "wanted", "is_counted"),
    [
        ("mtia", (), True),
        ("mps", ("mps",), True),
        ("mps", ("cpu",), False),
        ("cuda", (), False),
        ("npu", (), False),
        ("cuda", ("accelerator",), True),
        ("npu", ("npu",), False),
    ],
)
def test_a_history_is_preferred_to_counters(kind, wanted, is_counted):
    assert (counters_of(accelerator(kind), wanted) is not None) is is_counted


def test_a_machine_without_an_accelerator_has_no_counters():
    module = SimpleNamespace(accelerator=SimpleNamespace(current_accelerator=lambda: None))
    assert kind_of(module) == ""
    assert counters_of(module, ("accelerator",)) is None


def test_a_device_is_recorded_from_its_first_use():
    module = accelerator(is_initialized=False)
    sampler, started = Sampler(lambda: 0, 0), []
    first_use = FirstUse(module, sampler, lambda counters: sampler.add(CounterSamples(counters)), started.append)
    first_use.count(())
    first_use.look()
    sampler.take("end")
    assert not started
    assert not sampler.content()
    module._C._accelerator_isAllocatorInitialized = lambda: True
    first_use.look()
    first_use.look()
    sampler.take("phase")
    assert len(started) == 1
    assert sampler.content()[0]["counters"][0]["reserved_bytes"] == 6 * MIB


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="simulated devices need Linux")
@pytest.mark.parametrize("allocator", ["native", "cudaMallocAsync"])
def test_a_recording_of_counters_has_the_peaks_of_the_real_allocator(tmp_path, monkeypatch, allocator):
    python = cuda_python()
    if not python:
        pytest.skip("needs a Python with the CUDA build of torch")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", f"backend:{allocator}")
    words = ["--backend", "accelerator"] if allocator == "native" else []
    record = [*memdiag_command(), "record", "-q", *words, "--phantom", "cuda:h100-80g", "-o", "run", "--"]
    done = subprocess.run([*record, python, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, check=True)
    trace = load(tmp_path / "run" / "rank0.pkl")
    usage = trace.devices[0].usage
    assert [int(usage.reserved.max()), int(usage.allocated.max())] == [int(word) for word in done.stdout.split()]
    assert "MD908" in {note.code for note in trace.notes}
    assert len(trace.devices[0].samples) > 3
    assert set(trace.devices[0].events.step.tolist()) >= {0, 1, 2}
    at = trace.devices[0].peak("allocated")
    assert schema.PHASES[trace.devices[0].events.phase[at]] in {"forward", "backward"}
    assert json.loads((tmp_path / "run" / "rank0.json").read_text())["steps"] == 3
