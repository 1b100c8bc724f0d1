"""Gradients kept twice, or held in very large buckets."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memdiag.findings import Fix, Severity
from memdiag.lint.module import Hit, Module, has_double_star, is_constant, keyword

CODE = "MD810"
TITLE = "DistributedDataParallel keeps every gradient twice: in .grad and in its bucket"
SEVERITY: Severity = "warning"
WORDS = ("DistributedDataParallel",)
FIX = Fix(
    "let gradients be views of the buckets: DistributedDataParallel(…, gradient_as_bucket_view=True)",
    "code",
    "gradient_as_bucket_view=True",
    applicability="torch >= 1.7; saves as many bytes as the gradients have",
    caveat="detach_() of a gradient fails then, and optimizers that replace .grad lose the saving",
)
_NAMES = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel")
_LARGE_MB, _TINY_MB, _DEFAULT_MB = 200, 5, 25


def check(module: Module) -> Iterator[Hit]:
    """Points at DistributedDataParallel without views, and with buckets so large that they count."""
    for call in module.called(*_NAMES):
        view, size = keyword(call, "gradient_as_bucket_view"), keyword(call, "bucket_cap_mb")
        if (view is None and not has_double_star(call)) or is_constant(view, False):
            yield Hit(call)
        if isinstance(size, ast.Constant) and isinstance(size.value, int | float) and size.value >= _LARGE_MB:
            said = f"buckets of {size.value:,} MB: each is filled whole before its gradients travel, and lives as long as training does"
            yield Hit(size, said, f"bucket_cap_mb={_DEFAULT_MB}", minor=True)
        elif isinstance(size, ast.Constant) and isinstance(size.value, int | float) and 0 < size.value <= _TINY_MB:
            said = f"buckets of {size.value:,} MB: many small all-reduces, each with its own start; the default is {_DEFAULT_MB} MB"
            yield Hit(size, said, f"bucket_cap_mb={_DEFAULT_MB}", minor=True)
