"""The host waits for the device in every step of training."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.lint.module import Hit, Module
from memdiag.lint.waits import waits
from memdiag.results.finding import Severity
from memdiag.text import phrase

CODE = "MD807"
SEVERITY: Severity = "warning"
WORDS = (".item(", ".tolist(", ".cpu(", ".to(", "synchronize(")


def check(module: Module) -> Iterator[Hit]:
    """Yields waits in the training loop, except conditional ones (every so many steps), which are recommended."""
    for call, what in waits(module):
        where = module.in_step(call)
        if where is not None and not module.guarded(call, where) and module.in_forward(call) is None:
            yield Hit(call, phrase("lint.MD807.call", call=what))
