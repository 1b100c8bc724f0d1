"""The recorder of other accelerators calls torch's own functions as they are. No such hardware is needed."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest

from memdiag.recorder.backends.cuda import Cuda
from memdiag.recorder.backends.xpu import Xpu

torch = pytest.importorskip("torch")
STATS = {"allocation": {"all": {"allocated": 7, "freed": 2}}, "reserved_bytes": {"all": {"current": 4096}}}


def fake(hip=None, *, is_compiled=True):
    """Returns a torch whose functions have the signatures of the real one."""
    calls = []
    real = torch.xpu.memory

    def record(*args, **kwargs):
        calls.append(inspect.signature(real._record_memory_history).bind(*args, **kwargs).arguments)

    record.__signature__ = inspect.signature(real._record_memory_history)
    memory = SimpleNamespace(
        _record_memory_history=record,
        _snapshot=lambda: {"segments": [], "device_traces": [[]], "allocator_settings": {}},
        memory_stats_as_nested_dict=lambda *_: STATS,
    )
    xpu = SimpleNamespace(
        memory=memory,
        _is_compiled=lambda: is_compiled,
        _lazy_call=lambda start: start(),
        current_device=lambda: 0,
        device_count=lambda: 1,
        mem_get_info=lambda _: (3, 8),
        get_device_properties=lambda _: SimpleNamespace(total_memory=8),
    )
    assert all(hasattr(torch.xpu, name) for name in vars(xpu) if name != "memory")
    assert all(hasattr(real, name) for name in vars(memory))
    return SimpleNamespace(__name__="torch", xpu=xpu, version=SimpleNamespace(hip=hip)), calls


def test_xpu_is_recorded_through_its_own_history():
    module, calls = fake()
    started = []
    backend = Xpu()
    backend.watch(module, started.append)
    assert started == [backend]
    backend.start(1000)
    assert calls == [{"enabled": "all", "context": "all", "stacks": "python", "max_entries": 1000}]
    assert backend.position() == (0, 7, 2)
    assert backend.driver_memory(0) == (3, 8)
    assert backend.allocator_state(0) == (4096, 7, 2)
    assert backend.snapshot()["device_traces"] == [[]]
    assert backend.facts()["capacity_bytes"] == {0: 8}
    assert backend.kind == "xpu"


def test_a_build_without_xpu_is_left_alone():
    module, _ = fake(is_compiled=False)
    started = []
    Xpu().watch(module, started.append)
    assert not started


@pytest.mark.parametrize(("hip", "kind"), [("7.1", "hip"), (None, "cuda")])
def test_rocm_is_named_in_a_recording(hip, kind):
    backend = Cuda()
    backend._torch, _ = fake(hip)
    assert backend.kind == kind
