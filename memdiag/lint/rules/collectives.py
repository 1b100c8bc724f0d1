"""Collectives that overlap with nothing: each is waited for at once, or one is called for every parameter."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memdiag.lint.module import Hit, Module, is_constant, keyword
from memdiag.results.finding import Severity
from memdiag.text import phrase

CODE = "MD803"
SEVERITY: Severity = "info"
WORDS = ("async_op", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all")
_NAMES = tuple(
    f"torch.distributed.{name}"
    for name in (
        "all_reduce",
        "broadcast",
        "reduce",
        "all_gather",
        "all_gather_into_tensor",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "all_to_all",
        "all_to_all_single",
        "_all_gather_base",
        "_reduce_scatter_base",
    )
)
_HOST_CALLS = frozenset(
    {"get_rank", "get_world_size", "is_initialized", "device", "zeros", "empty", "ones", "tensor", "append", "log"}
)
_ONE_BY_ONE = ("torch.distributed.all_reduce", "torch.distributed.broadcast")


def check(module: Module) -> Iterator[Hit]:
    """Yields handles that are waited for in the next statement or dropped, and collectives per gradient."""
    for call in module.called(*_NAMES):
        if is_constant(keyword(call, "async_op"), True):
            parent = module.parents.get(call)
            if isinstance(parent, ast.Attribute) and parent.attr == "wait":
                yield Hit(call)
            elif isinstance(parent, ast.Expr):
                yield Hit(call, phrase("lint.MD803.dropped"))
            elif isinstance(parent, ast.Assign) and _waits(_next(module, parent), parent.targets[0]):
                yield Hit(call)
            continue
        independent = _independent_work(module, call)
        if independent is not None:
            yield Hit(
                call,
                phrase("lint.MD803.independent", line=str(independent.lineno)),
                f"handle = {_asynchronous(call)}   # then the work that does not need it, then handle.wait()",
            )
    for call in module.called(*_ONE_BY_ONE):
        if call.args and _is_gradient(call.args[0]) and _over_parameters(module, call):
            yield Hit(
                call,
                phrase("lint.MD803.each"),
                "flatten the gradients into buckets, or use DistributedDataParallel",
            )


def _independent_work(module: Module, call: ast.Call) -> ast.stmt | None:
    """Returns the statement after a synchronous collective of a training step.

    None if it uses the collective's tensors.
    """
    statement = module.parents.get(call)
    if not isinstance(statement, ast.Expr) or keyword(call, "async_op") is not None or not call.args:
        return None
    if module.in_step(call) is None and module.in_forward(call) is None:
        return None
    following = _next(module, statement)
    if not isinstance(following, ast.Assign | ast.AugAssign) or not _computes(module, following.value):
        return None
    used = {node.id for argument in call.args for node in ast.walk(argument) if isinstance(node, ast.Name)} - {"self"}
    attributes = {ast.unparse(argument) for argument in call.args if isinstance(argument, ast.Attribute)}
    read = {node.id for node in ast.walk(following) if isinstance(node, ast.Name)}
    mentioned = {ast.unparse(node) for node in ast.walk(following) if isinstance(node, ast.Attribute)}
    return None if used & read or attributes & mentioned or not (used or attributes) else following


def _computes(module: Module, value: ast.expr) -> bool:
    """Returns whether an expression runs on the device.

    It is a product, or a call of a module or torch function but no collective.
    """
    for node in ast.walk(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return True
        if isinstance(node, ast.Call) and _is_device_work(module, node):
            return True
    return False


def _is_device_work(module: Module, call: ast.Call) -> bool:
    name = module.dotted(call.func)
    if name.startswith("torch.distributed") or name.rpartition(".")[2] in _HOST_CALLS:
        return False
    return name.startswith(("torch.", "self.", "model", "module")) or name in {"model", "net"}


def _asynchronous(call: ast.Call) -> str:
    return ast.unparse(call)[:-1] + ", async_op=True)"


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
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "wait"
        and ast.unparse(function.value) == ast.unparse(handle)
    )


def _is_gradient(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute) and node.attr == "data":
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr in {"grad", "main_grad"}


def _over_parameters(module: Module, call: ast.Call) -> bool:
    loop = next((each for each in module.above(call) if isinstance(each, ast.For)), None)
    if loop is None or not isinstance(loop.iter, ast.Call) or not isinstance(loop.iter.func, ast.Attribute):
        return False
    asynchronous = is_constant(keyword(call, "async_op"), True)
    return (
        not asynchronous
        and loop.iter.func.attr in {"parameters", "named_parameters"}
        and module.function(loop) is module.function(call)
    )
