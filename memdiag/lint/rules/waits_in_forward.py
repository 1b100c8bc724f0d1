"""A value copied to the host in the middle of the network."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memdiag.lint.module import Hit, Module
from memdiag.lint.waits import waits
from memdiag.results.finding import Severity
from memdiag.text import phrase

CODE = "MD806"
SEVERITY: Severity = "warning"
WORDS = (".item(", ".tolist(", ".cpu(", ".to(", "synchronize(")


def check(module: Module) -> Iterator[Hit]:
    """Yields waits in ``forward`` and the methods it calls; conditional ones are shown as info."""
    for call, what in waits(module):
        where = module.in_forward(call)
        if where is not None:
            rare = module.guarded(call, where)
            yield Hit(call, phrase("lint.MD806.call", call=what, where=_name(module, where)), minor=rare)


def _name(module: Module, function: ast.AST) -> str:
    parent = module.parents.get(function)
    own = getattr(function, "name", "")
    return f"{parent.name}.{own}()" if isinstance(parent, ast.ClassDef) else f"{own}()"
