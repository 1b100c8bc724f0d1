"""Blocks that wait for another stream after they are freed."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.lint.module import Hit, Module
from memdiag.results.finding import Severity

CODE = "MD811"
SEVERITY: Severity = "info"
WORDS = ("record_stream",)


def check(module: Module) -> Iterator[Hit]:
    """Yields calls of record_stream on tensors."""
    for call in module.methods("record_stream"):
        if len(call.args) == 1 and not call.keywords:
            yield Hit(call)
