"""The allocator's cache released inside training."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.lint.module import DEVICES, Hit, Module
from memdiag.results.finding import Severity

CODE = "MD804"
SEVERITY: Severity = "warning"
WORDS = ("empty_cache",)
CHANGE = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
_CALLS = tuple(f"{device}.{name}" for device in DEVICES for name in ("empty_cache", "memory.empty_cache"))


def check(module: Module) -> Iterator[Hit]:
    """Yields calls in every training step or forward, except conditional ones, which limit how often they run."""
    for call in module.called(*_CALLS):
        where = module.in_step(call) or module.in_forward(call)
        if where is not None and not module.guarded(call, where):
            yield Hit(call)
