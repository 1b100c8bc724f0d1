"""Gathering into a list of tensors that is then concatenated: shards and result are live at the same time."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memdiag.lint.module import Hit, Module, keyword
from memdiag.results.finding import Severity
from memdiag.text import phrase

CODE = "MD801"
SEVERITY: Severity = "warning"
WORDS = ("all_gather", "reduce_scatter")
_JOINS = tuple(f"torch.{name}" for name in ("cat", "concat", "concatenate", "hstack", "vstack"))
_SPLITS = ("chunk", "split", "tensor_split", "unbind")


def check(module: Module) -> Iterator[Hit]:
    """Yields all_gather into a list that is only concatenated, and reduce_scatter of the pieces of one tensor."""
    for call in module.called("torch.distributed.all_gather"):
        into = call.args[0] if call.args else keyword(call, "tensor_list")
        if isinstance(into, ast.Name) and _only_joined(module, call, into):
            yield Hit(call, fix="torch.distributed.all_gather_into_tensor(output, tensor)")
    for call in module.called("torch.distributed.reduce_scatter"):
        pieces = call.args[1] if len(call.args) > 1 else keyword(call, "input_list")
        if pieces is not None and _is_split(module, call, pieces):
            yield Hit(
                call,
                phrase("lint.MD801.scatter"),
                "torch.distributed.reduce_scatter_tensor(output, input)",
            )


def _only_joined(module: Module, call: ast.Call, into: ast.Name) -> bool:
    """Returns whether the list is concatenated on the device and otherwise only read.

    Code that writes a shard into the list needs the list.
    """
    joined, name = False, into.id
    if any(
        isinstance(node, ast.Attribute) and node.attr == "cpu"
        for value in module.given(into)
        for node in ast.walk(value)
    ):
        return False
    for node in ast.walk(module.scope(call)):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name:
            return False
        if isinstance(node, ast.Call) and module.dotted(node.func) in _JOINS and node.lineno >= call.lineno:
            first = node.args[0] if node.args else keyword(node, "tensors")
            joined |= isinstance(first, ast.Name) and first.id == name and not _other_dimension(node)
    return joined


def _other_dimension(join: ast.Call) -> bool:
    """Returns whether the parts are surely not concatenated along the first dimension.

    Then a flat output saves less.
    """
    dim = join.args[1] if len(join.args) > 1 else keyword(join, "dim") or keyword(join, "axis")
    return dim is not None and not (isinstance(dim, ast.Constant) and dim.value == 0)


def _is_split(module: Module, call: ast.Call, pieces: ast.expr) -> bool:
    if isinstance(pieces, ast.Name):
        given = module.given(pieces)
        return bool(given) and all(_is_split(module, call, value) for value in given if not isinstance(value, ast.Name))
    if isinstance(pieces, ast.Call) and module.dotted(pieces.func) == "list" and pieces.args:
        return _is_split(module, call, pieces.args[0])
    if isinstance(pieces, ast.Call) and isinstance(pieces.func, ast.Attribute) and pieces.func.attr in _SPLITS:
        given = pieces.args[1:] if module.dotted(pieces.func.value) == "torch" else pieces.args
        # pieces of different sizes need the list
        if given and re.search(r"sizes|splits|lengths|^\[", ast.unparse(given[0])):
            return False
        along = given[1:]
        dim = along[0] if along else keyword(pieces, "dim")
        return dim is None or (isinstance(dim, ast.Constant) and dim.value == 0)
    return False
