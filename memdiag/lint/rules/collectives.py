"""Collectives that overlap nothing: each is waited for at once, or one is called for every parameter."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memdiag.findings import Fix, Severity
from memdiag.lint.module import Hit, Module, is_constant, keyword

CODE = "MD803"
TITLE = "an asynchronous collective is waited for at once: nothing runs beside it"
SEVERITY: Severity = "info"
WORDS = ("async_op", "all_reduce", "broadcast")
FIX = Fix(
    "start the collective early and wait where its result is needed; let go of the handle then",
    "code",
    applicability="collectives beside which there is something to compute",
    caveat="the handle keeps the buffers alive until it is dropped: a list of handles that is never cleared holds all of them",
)
_NAMES = tuple(
    f"torch.distributed.{name}"
    for name in (
        "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor",
        "all_to_all", "all_to_all_single", "_all_gather_base", "_reduce_scatter_base",
    )
)  # fmt: skip
_ONE_BY_ONE = ("torch.distributed.all_reduce", "torch.distributed.broadcast")


def check(module: Module) -> Iterator[Hit]:
    """Points at handles that are waited for in the next statement, that nobody keeps, and at a collective for each gradient."""
    for call in module.called(*_NAMES):
        if is_constant(keyword(call, "async_op"), True):
            parent = module.parents.get(call)
            if isinstance(parent, ast.Attribute) and parent.attr == "wait":
                yield Hit(call)
            elif isinstance(parent, ast.Expr):
                yield Hit(call, "the handle of an asynchronous collective is dropped: nothing waits for its result")
            elif isinstance(parent, ast.Assign) and _waits(_next(module, parent), parent.targets[0]):
                yield Hit(call)
    for call in module.called(*_ONE_BY_ONE):
        if call.args and _is_gradient(call.args[0]) and _over_parameters(module, call):
            yield Hit(
                call,
                "one collective for each parameter's gradient: many small ones, each with its own start",
                "flatten the gradients into buckets, or use DistributedDataParallel",
            )


def _next(module: Module, statement: ast.stmt) -> ast.stmt | None:
    parent = module.parents.get(statement)
    for _, value in ast.iter_fields(parent) if parent else ():
        if isinstance(value, list) and statement in value:
            rest = value[value.index(statement) + 1 :]
            return rest[0] if rest else None
    return None


def _waits(statement: ast.stmt | None, handle: ast.expr) -> bool:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    function = statement.value.func
    return isinstance(function, ast.Attribute) and function.attr == "wait" and ast.unparse(function.value) == ast.unparse(handle)


def _is_gradient(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute) and node.attr == "data":
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr in {"grad", "main_grad"}


def _over_parameters(module: Module, call: ast.Call) -> bool:
    loop = next((each for each in module.above(call) if isinstance(each, ast.For)), None)
    if loop is None or not isinstance(loop.iter, ast.Call) or not isinstance(loop.iter.func, ast.Attribute):
        return False
    asynchronous = is_constant(keyword(call, "async_op"), True)
    return not asynchronous and loop.iter.func.attr in {"parameters", "named_parameters"} and module.function(loop) is module.function(call)
