"""Gradients stored twice, or in very large buckets."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memdiag.lint.module import Hit, Module, has_double_star, is_constant, keyword
from memdiag.results.finding import Severity
from memdiag.text import phrase

CODE = "MD810"
SEVERITY: Severity = "warning"
WORDS = ("DistributedDataParallel",)
CHANGE = "gradient_as_bucket_view=True"
_NAMES = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel")
_LARGE_MB, _TINY_MB, _DEFAULT_MB = 200, 5, 25


def check(module: Module) -> Iterator[Hit]:
    """Yields DistributedDataParallel without bucket views, and with buckets large enough to matter."""
    for call in module.called(*_NAMES):
        view, size = keyword(call, "gradient_as_bucket_view"), keyword(call, "bucket_cap_mb")
        if (view is None and not has_double_star(call)) or is_constant(view, False):
            yield Hit(call)
        if isinstance(size, ast.Constant) and isinstance(size.value, int | float) and size.value >= _LARGE_MB:
            said = phrase("lint.MD810.large", size=size.value)
            yield Hit(size, said, f"bucket_cap_mb={_DEFAULT_MB}", minor=True)
        elif isinstance(size, ast.Constant) and isinstance(size.value, int | float) and 0 < size.value <= _TINY_MB:
            said = phrase("lint.MD810.tiny", size=size.value, default=_DEFAULT_MB)
            yield Hit(size, said, f"bucket_cap_mb={_DEFAULT_MB}", minor=True)
