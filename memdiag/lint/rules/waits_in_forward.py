"""A value taken to the host in the middle of the network."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memdiag.findings import Fix, Severity
from memdiag.lint.module import Hit, Module
from memdiag.lint.waits import waits

CODE = "MD806"
TITLE = "a value is taken to the host in the middle of the network: the host waits, and the device idles after it"
SEVERITY: Severity = "warning"
WORDS = (".item(", ".tolist(", ".cpu(", ".to(", "synchronize(")
FIX = Fix(
    "keep it on the device: torch.where and masks instead of branches, lengths computed by the loader and handed over",
    "code",
    applicability="forward and what it calls",
    caveat="code that only runs while debugging or exporting may stay",
)


def check(module: Module) -> Iterator[Hit]:
    """Points at waits in ``forward`` and the methods it calls; those under a condition are shown as info."""
    for call, what in waits(module):
        where = module.in_forward(call)
        if where is not None:
            rare = module.guarded(call, where)
            yield Hit(call, f"{what} in {_name(module, where)}: the host waits for the device in the middle of the network", minor=rare)


def _name(module: Module, function: ast.AST) -> str:
    parent = module.parents.get(function)
    own = getattr(function, "name", "")
    return f"{parent.name}.{own}()" if isinstance(parent, ast.ClassDef) else f"{own}()"
