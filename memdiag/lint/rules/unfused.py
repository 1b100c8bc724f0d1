"""Element-wise chains that one operator could replace: each link keeps an intermediate."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memdiag.lint.module import Hit, Module, is_constant, keyword, last_name, same
from memdiag.results.finding import Severity
from memdiag.text import phrase

CODE = "MD808"
SEVERITY: Severity = "info"
WORDS = ("sigmoid(", "erf(", "softmax(", "rsqrt(")
_OWN = re.compile(r"eager|naive|reference|unfused|slow|manual|native|torch_impl|fallback")


def check(module: Module) -> Iterator[Hit]:
    """Yields SiLU, exact GELU, log-softmax, RMS norm and attention that are written out.

    Code that declares itself as the slow form is skipped.
    """
    for node in ast.walk(module.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            hit = _silu(module, node) or _gelu(module, node) or _rms_norm(module, node)
        elif isinstance(node, ast.Call):
            hit = _log_softmax(module, node) or _attention(module, node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            hit = _attention(module, node)
        else:
            continue
        if hit is not None and not _says_so(module, node):
            yield hit


def _says_so(module: Module, node: ast.AST) -> bool:
    names = (
        getattr(each, "name", "")
        for each in module.above(node)
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    )
    return any(_OWN.search(name.lower()) for name in names if isinstance(name, str))


def _of(module: Module, node: ast.AST, *names: str) -> ast.expr | None:
    """Returns x of ``torch.name(x)``, ``torch.nn.functional.name(x)`` or ``x.name()``, or None for other calls."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Attribute, ast.Name)):
        return None
    full = module.dotted(node.func)
    for name in names:
        if full in {f"torch.{name}", f"torch.nn.functional.{name}", f"torch.special.{name}"}:
            return node.args[0] if node.args else keyword(node, "input")
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == name
            and not full.startswith(("torch", "math", "numpy", "jax"))
        ):
            return node.func.value
    return None


def _silu(module: Module, node: ast.BinOp) -> Hit | None:
    for one, other in ((node.left, node.right), (node.right, node.left)):
        inner = _of(module, other, "sigmoid")
        if inner is not None and same(inner, one):
            return Hit(node, phrase("lint.MD808.silu"), f"torch.nn.functional.silu({ast.unparse(one)})")
    return None


def _gelu(module: Module, node: ast.BinOp) -> Hit | None:
    """Finds x * 0.5 * (1 + erf(x / sqrt 2)), in any order of the factors."""
    outer = module.parents.get(node)
    if isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Mult):
        return None  # the whole product is examined once
    factors = _factors(node)
    if not any(is_constant(each, 0.5) for each in factors):
        return None
    for each in factors:
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Add) and _is_one(each.left, each.right):
            inner = _of(module, each.right, "erf") or _of(module, each.left, "erf")
            x = inner.left if isinstance(inner, ast.BinOp) and isinstance(inner.op, (ast.Div, ast.Mult)) else None
            if x is not None and any(same(x, factor) for factor in factors):
                return Hit(node, phrase("lint.MD808.gelu"), f"torch.nn.functional.gelu({ast.unparse(x)})")
    return None


def _factors(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]


def _is_one(*nodes: ast.expr) -> bool:
    return any(is_constant(node, 1) or is_constant(node, 1.0) for node in nodes)


def _log_softmax(module: Module, node: ast.Call) -> Hit | None:
    inner = _of(module, node, "log")
    if inner is not None and _of(module, inner, "softmax") is not None:
        return Hit(node, phrase("lint.MD808.log-softmax"), "torch.nn.functional.log_softmax(x, dim)")
    return None


def _rms_norm(module: Module, node: ast.BinOp) -> Hit | None:
    """Finds x * rsqrt(mean of x squared + eps), with the mean inline or in the previous statement."""
    for one, other in ((node.left, node.right), (node.right, node.left)):
        under = _of(module, other, "rsqrt")
        if not isinstance(under, ast.BinOp) or not isinstance(under.op, ast.Add):
            continue
        for term in (under.left, under.right):
            squared = _mean_of_square(module, _definition(module, term))
            if squared is None or not same(squared, one):
                continue
            if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub):
                return Hit(
                    node,
                    phrase("lint.MD808.layer-norm"),
                    "torch.nn.functional.layer_norm(…)",
                )
            return Hit(node, phrase("lint.MD808.rms-norm"), "torch.nn.functional.rms_norm(…)")
    return None


def _definition(module: Module, term: ast.expr) -> ast.expr:
    given = module.given(term) if isinstance(term, ast.Name) else []
    return given[0] if given else term


def _mean_of_square(module: Module, node: ast.expr) -> ast.expr | None:
    square = _of(module, node, "mean")
    if square is None:
        return None
    if (
        isinstance(square, ast.BinOp)
        and isinstance(square.op, ast.Pow)
        and (is_constant(square.right, 2) or is_constant(square.right, 2.0))
    ):
        return square.left
    if isinstance(square, ast.BinOp) and isinstance(square.op, ast.Mult) and same(square.left, square.right):
        return square.left
    powered = _of(module, square, "pow")
    if powered is not None and isinstance(square, ast.Call) and square.args and is_constant(square.args[-1], 2):
        return powered
    return _of(module, square, "square")


def _attention(module: Module, node: ast.AST) -> Hit | None:
    """Finds softmax(q @ k …) @ v in one function; if v is a weight, it is the gradient of a loss over a vocabulary."""
    left: ast.expr | None
    if isinstance(node, ast.BinOp):
        left, right = node.left, node.right
    elif (
        isinstance(node, ast.Call) and module.dotted(node.func) in {"torch.matmul", "torch.bmm"} and len(node.args) > 1
    ):
        left, right = node.args[:2]
    else:
        return None
    if "weight" in last_name(right):
        return None
    scores = _through(module, left)
    weights = _of(module, scores, "softmax") if scores is not None else None
    products = None if weights is None else _through(module, weights)
    if products is not None and any(_is_product(module, each) for each in (products, *ast.walk(products))):
        return Hit(node, phrase("lint.MD808.attention"), "torch.nn.functional.scaled_dot_product_attention(q, k, v)")
    return None


def _through(module: Module, node: ast.expr | None) -> ast.expr | None:
    """Follows a local name that is assigned once, and casts and dropout around it."""
    for _ in range(6):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"to", "type_as", "float", "type"}
        ):
            node = node.func.value
        elif isinstance(node, ast.Call) and _is_dropout(module, node) and node.args:
            node = node.args[0]
        elif isinstance(node, ast.Name):
            given = _assigned(module, node)
            if len(given) != 1:
                return None
            node = given[0]
        else:
            break
    return node


def _assigned(module: Module, name: ast.Name) -> list[ast.expr]:
    """Returns the values assigned to a name in its function, without casts or masks of itself (``a = a + mask``)."""
    given = module.given(name)
    return [value for value in given if not _mentions(value, name.id)] or given


def _mentions(value: ast.expr, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))


def _is_dropout(module: Module, call: ast.Call) -> bool:
    return "dropout" in module.dotted(call.func).rpartition(".")[2].lower()


def _is_product(module: Module, node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return _is_transposed(node.right)
    is_call = (
        isinstance(node, ast.Call) and module.dotted(node.func) in {"torch.matmul", "torch.bmm"} and len(node.args) == 2
    )
    return is_call and _is_transposed(node.args[1])  # type: ignore[attr-defined]


def _is_transposed(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in {"T", "mT"}
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"transpose", "permute", "t", "swapaxes"}
    )
