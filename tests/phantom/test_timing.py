"""Autotuning on a simulated device runs every candidate but measures no times."""

import math
import sys
from types import ModuleType, SimpleNamespace

import pytest

from memdiag.phantom.boot import timing


@pytest.fixture
def benchmarking():
    module = ModuleType("benchmarking")

    class Base:
        def benchmark_gpu(self, run, **_):
            return run()

    class Other(Base):
        def benchmark_gpu(self, run, return_mode="min"):
            return [run()] * 3 if return_mode == "all" else run()

    module.Base, module.Other = Base, Other
    timing.begin(module)
    return module


def test_all_candidates_are_run_and_take_the_same_time(benchmarking):
    runs = []
    for number in range(3):
        assert benchmarking.Other().benchmark_gpu(lambda number=number: runs.append(number) or number / 1000) == 1
        assert benchmarking.Base().benchmark_gpu(lambda number=number: runs.append(number) or number / 1000) == 1
    assert runs == [0, 0, 1, 1, 2, 2]
    assert benchmarking.Other().benchmark_gpu(lambda: 7, return_mode="all") == [1] * 3


def test_candidates_are_counted_only_if_the_program_enabled_autotuning(benchmarking, monkeypatch):
    before = timing.facts()["candidates"]
    monkeypatch.setitem(
        sys.modules, "torch._inductor.config", SimpleNamespace(max_autotune=False, max_autotune_gemm=False)
    )
    benchmarking.Base().benchmark_gpu(lambda: 7)
    assert timing.facts()["candidates"] == before
    monkeypatch.setitem(sys.modules, "torch._inductor.config", SimpleNamespace(max_autotune=True))
    benchmarking.Base().benchmark_gpu(lambda: 7)
    assert timing.facts()["candidates"] == before + 1


def test_the_error_of_a_candidate_is_raised(benchmarking):
    with pytest.raises(ZeroDivisionError):
        benchmarking.Base().benchmark_gpu(lambda: 1 / 0)


def test_triton_runs_each_configuration_once_and_takes_the_first():
    limits = []

    def do_bench(run, warmup=25, rep=100, quantiles=None):
        limits.append((warmup, rep))
        return [run()] * 3 if quantiles else run()

    module = SimpleNamespace(do_bench=do_bench)
    timing.begin_triton(module)
    assert module.do_bench(lambda: 7, warmup=30, quantiles=(0.5, 0.2, 0.8)) == [1] * 3
    assert module.do_bench(lambda: 7, 30) == 1
    assert limits == [(0, 0), (30, 0)]


def test_triton_compiles_no_configuration_after_the_first_that_works(monkeypatch):
    compiled = []

    class Autotuner:
        def prune_configs(self, configs):
            return configs

        def _bench(self, *, config):
            compiled.append(config)
            return [math.inf if config == "too large" else 1.0] * 3

        def run(self, configs):
            timings = {config: self._bench(config=config) for config in self.prune_configs(configs)}
            return min(timings, key=timings.get)

    monkeypatch.setitem(sys.modules, "triton.runtime.autotuner", SimpleNamespace(Autotuner=Autotuner))
    timing.begin_triton(SimpleNamespace(do_bench=lambda run: run()))
    assert Autotuner().run(["too large", "first", "second"]) == "first"
    tuner = Autotuner()
    assert [tuner.run(["a", "b"]), tuner.run(["c", "d"])] == ["a", "c"]
    assert compiled == ["too large", "first", "a", "c"]


def test_limits_of_repetitions_go_only_to_those_that_know_them():
    seen = []

    class OfTriton:
        def benchmark_gpu(self, _run, **kwargs):
            seen.append(kwargs)

    class OfPyTorch:
        def benchmark_gpu(self, _run, benchmark_iters=100, max_benchmark_duration=25):
            seen.append((benchmark_iters, max_benchmark_duration))

    module = ModuleType("benchmarking")
    module.OfTriton, module.OfPyTorch = OfTriton, OfPyTorch
    timing.begin(module)
    module.OfTriton().benchmark_gpu(None, rep=40)
    module.OfPyTorch().benchmark_gpu(None)
    assert seen == [{"rep": 0, "warmup": 0}, (100, 0)]
