"""Keeps torch.compile from choosing kernels by times that a phantom device cannot have (max-autotune).

Candidates run as they would, with the memory that takes, but all are said to take the same time: of equals PyTorch
takes the first, which for matrix products is the library's. By the stand-in's clock it would be whichever makes the
fewest calls.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

_MILLISECONDS = 1.0
_SETTINGS = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise")

_num_candidates = 0


def begin(benchmarking: Any) -> None:
    """Replaces what measures kernels.

    Args:
        benchmarking: The module ``torch._inductor.runtime.benchmarking``.
    """
    for kind in list(vars(benchmarking).values()):
        if isinstance(kind, type) and "benchmark_gpu" in vars(kind):
            setattr(kind, "benchmark_gpu", _same_for_all(vars(kind)["benchmark_gpu"]))  # noqa: B010 - some class, for mypy


def facts() -> dict[str, int]:
    """Returns how many candidates for kernels were run without being timed, where the program asked for the fastest."""
    return {"candidates": _num_candidates}


def _same_for_all(original: Any) -> Any:
    @functools.wraps(original)
    def benchmark_gpu(*args: Any, **kwargs: Any) -> Any:
        global _num_candidates  # noqa: PLW0603 - one count a process
        found = original(*args, **kwargs)
        config = sys.modules.get("torch._inductor.config")
        if any(getattr(config, name, False) for name in _SETTINGS):
            _num_candidates += 1
        return [_MILLISECONDS] * len(found) if isinstance(found, (list, tuple)) else _MILLISECONDS

    return benchmark_gpu
