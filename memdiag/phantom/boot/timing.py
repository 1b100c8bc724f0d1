"""Keeps torch.compile from choosing kernels by time, which a simulated device does not have (max-autotune).

Candidates run as usual, with the memory that takes, but all get the same time: PyTorch chooses the first of equals,
which for matrix products is the library's. By the simulated runtime's clock, it would be the one with the fewest calls.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

_MILLISECONDS = 1.0
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


def facts() -> dict[str, int]:
    """Returns how many kernel candidates were run without being timed, where the program asked for the fastest."""
    return {"candidates": _num_candidates}


def _same_for_all(original: Any) -> Any:
    @functools.wraps(original)
    def benchmark_gpu(*args: Any, **kwargs: Any) -> Any:
        global _num_candidates  # noqa: PLW0603 - one count per process
        found = original(*args, **kwargs)
        config = sys.modules.get("torch._inductor.config")
        if any(getattr(config, name, False) for name in _SETTINGS):
            _num_candidates += 1
        return [_MILLISECONDS] * len(found) if isinstance(found, (list, tuple)) else _MILLISECONDS

    return benchmark_gpu
