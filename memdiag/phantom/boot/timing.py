"""Keeps torch.compile from choosing kernels by time, which a simulated device does not have (max-autotune).

Candidates run as usual, with the memory that takes, but all get the same time: PyTorch chooses the first of equals,
which for matrix products is the library's. By the simulated runtime's clock, it would be the one with the fewest calls.

Each candidate runs as few times as possible. Triton otherwise repeats it until 100 ms have passed, which on the
simulated runtime's clock (1 microsecond per event) takes half a million calls. Triton compiles each configuration of a
kernel in order to time it, which takes minutes for a library with many kernels. Here it compiles configurations only up
to the first that works.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from typing import Any

_MILLISECONDS = 1.0
# Arguments that limit the repetitions of triton.testing.do_bench, which PyTorch's benchmarker hands on, and of
# PyTorch's own.
_OF_TRITON = ("warmup", "rep")
_OF_PYTORCH = ("max_benchmark_duration",)
_SETTINGS = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise")

_num_candidates = 0


def begin(benchmarking: Any) -> None:
    """Replaces the function that times kernels.

    Args:
        benchmarking: The module ``torch._inductor.runtime.benchmarking``.
    """
    for kind in list(vars(benchmarking).values()):
        if isinstance(kind, type) and "benchmark_gpu" in vars(kind):
            # Some class, for mypy.
            setattr(kind, "benchmark_gpu", _same_for_all(vars(kind)["benchmark_gpu"]))  # noqa: B010


def begin_triton(testing: Any) -> None:
    """Replaces the function with which Triton times the configurations of a kernel that is tuned.

    Args:
        testing: The module ``triton.testing``.
    """
    testing.do_bench = _same_for_all(testing.do_bench, is_counted=False)
    tuner = getattr(sys.modules.get("triton.runtime.autotuner"), "Autotuner", None)
    if hasattr(tuner, "prune_configs") and hasattr(tuner, "_bench"):
        _take_first_that_works(tuner)


def facts() -> dict[str, int]:
    """Returns how many kernel candidates were run without being timed, where the program asked for the fastest."""
    return {"candidates": _num_candidates}


def _take_first_that_works(tuner: Any) -> None:
    """Lets Triton's tuner (autotuner.py: Autotuner.run) time configurations up to the first one that can be compiled.

    It calls ``prune_configs`` once for each new key, then ``_bench`` for each configuration, and takes the fastest.
    """
    choose, time_one = tuner.prune_configs, tuner._bench

    @functools.wraps(choose)
    def prune_configs(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.memdiag_found = False
        return choose(self, *args, **kwargs)

    @functools.wraps(time_one)
    def bench(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "memdiag_found", False):
            return [math.inf] * 3
        found = time_one(self, *args, **kwargs)
        self.memdiag_found = min(found) < math.inf if isinstance(found, (list, tuple)) else found < math.inf
        return found

    tuner.prune_configs, tuner._bench = prune_configs, bench


def _same_for_all(original: Any, is_counted: bool = True) -> Any:
    parameters = inspect.signature(original).parameters
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    limits = [name for name in _OF_PYTORCH if name in parameters]
    limits += [name for name in _OF_TRITON if takes_any or name in parameters]

    @functools.wraps(original)
    def benchmark(*args: Any, **kwargs: Any) -> Any:
        global _num_candidates  # noqa: PLW0603 - one count per process
        by_position = list(parameters)[: len(args)]
        found = original(*args, **kwargs | {name: 0 for name in limits if name not in by_position})
        config = sys.modules.get("torch._inductor.config")
        if is_counted and any(getattr(config, name, False) for name in _SETTINGS):
            _num_candidates += 1
        return [_MILLISECONDS] * len(found) if isinstance(found, (list, tuple)) else _MILLISECONDS

    return benchmark
