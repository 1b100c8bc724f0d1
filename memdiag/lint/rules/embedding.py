"""Rows of a weight selected by a general operator although a dedicated one exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memdiag.lint.module import Hit, Module, is_constant, keyword, last_name
from memdiag.results.finding import Severity
from memdiag.text import phrase

CODE = "MD802"
SEVERITY: Severity = "info"
WORDS = ("index_select", "one_hot", "weight[", "embeddings[", "embedding[", "_table[", "wte[", "wpe[")
_WEIGHT = re.compile(r"^(weights?|embed|(\w+_)?embeddings?(_table|_weights?)?|wte|wpe)$")
_MATRICES = re.compile(r"layer|expert|head|codebook|group")  # selects whole matrices, not rows
_ONE_HOT = "torch.nn.functional.one_hot"
_CASTS = ("to", "type", "float", "half", "bfloat16", "type_as", "double")


def check(module: Module) -> Iterator[Hit]:
    """Yields index_select of the rows of a weight, and one-hot vectors multiplied by a matrix."""
    for call in module.methods("index_select"):
        assert isinstance(call.func, ast.Attribute)  # noqa: S101 - methods() guarantees this; for the type checker
        general = module.dotted(call.func) == "torch.index_select"
        source = call.args[0] if general and call.args else call.func.value
        rest = call.args[1:] if general else call.args
        dim = rest[0] if rest else keyword(call, "dim")
        ids = rest[1] if len(rest) > 1 else keyword(call, "index")
        matrices = ids is not None and _MATRICES.search(last_name(ids))
        if is_constant(dim, 0) and isinstance(source, ast.Attribute) and _WEIGHT.search(source.attr) and not matrices:
            yield Hit(call, fix=f"torch.nn.functional.embedding(ids, {ast.unparse(source)})")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Subscript) and _takes_rows(module, node):
            yield _of_subscript(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and _is_one_hot(module, node.left):
            yield Hit(node, phrase("lint.MD802.one-hot"))
    for call in module.called("torch.matmul", "torch.mm"):
        if call.args and _is_one_hot(module, call.args[0]):
            yield Hit(call, phrase("lint.MD802.one-hot"))


def _takes_rows(module: Module, node: ast.Subscript) -> bool:
    """Returns whether a tensor of ids or a mask selects rows of a weight: ``self.weight[ids]``, not ``weight[0]``."""
    if (
        not isinstance(node.ctx, ast.Load)
        or not isinstance(node.value, ast.Attribute)
        or not _WEIGHT.search(node.value.attr)
    ):
        return False
    index = node.slice
    if not isinstance(index, ast.Name | ast.Attribute | ast.Call | ast.Compare) or _MATRICES.search(last_name(index)):
        return False
    return not _is_number(module, index) and module.in_forward(node) is not None


def _is_number(module: Module, index: ast.expr) -> bool:
    """Returns whether an index is one number: a loop counter, or a constant."""
    if not isinstance(index, ast.Name):
        return False
    targets = [each.target for each in module.above(index) if isinstance(each, ast.For | ast.AsyncFor)]
    targets += [part.target for each in module.above(index) for part in getattr(each, "generators", ())]
    counted = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    given = module.given(index)
    return index.id in counted or (bool(given) and all(isinstance(value, ast.Constant | ast.Slice) for value in given))


def _of_subscript(node: ast.Subscript) -> Hit:
    weight, index = ast.unparse(node.value), ast.unparse(node.slice)
    if isinstance(node.slice, ast.Compare) or "mask" in last_name(node.slice):
        said = phrase("lint.MD802.mask")
        return Hit(
            node,
            said,
            f"torch.nn.functional.embedding(ids, {weight})   # ids: the rows that {index} marks, made by the loader",
        )
    return Hit(node, fix=f"torch.nn.functional.embedding({index}, {weight})")


def _is_one_hot(module: Module, node: ast.expr) -> bool:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CASTS:
        node = node.func.value
    return isinstance(node, ast.Call) and module.dotted(node.func) == _ONE_HOT
