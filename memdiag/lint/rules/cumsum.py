"""Running sums on compute units that are not designed for them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memdiag.lint.module import Hit, Module, keyword
from memdiag.results.finding import Severity

CODE = "MD809"
SEVERITY: Severity = "info"
WORDS = ("cumsum",)
_WHOLE = re.compile(
    r"mask|dur|ids|idx|ind(ex|ices)|pos|len|count|num|offset|seq|bool|eq\(|ne\(|int|long|one_hot|[=!]=|[<>]|size|split|"
    r"chunk|probs?_sort|sorted"
)


def check(module: Module) -> Iterator[Hit]:
    """Yields cumsum of possibly floating-point values in ``forward``.

    Masks, positions and lengths are whole numbers.
    """
    for call in module.methods("cumsum"):
        assert isinstance(call.func, ast.Attribute)  # noqa: S101 - methods() guarantees this; for the type checker
        source = call.args[0] if module.dotted(call.func) == "torch.cumsum" and call.args else call.func.value
        statement = module.statement(call)
        target = ast.unparse(statement.targets[0]) if isinstance(statement, ast.Assign) else ""
        if module.dotted(call.func).startswith(("numpy", "np.")) or keyword(call, "dtype") is not None:
            continue
        if module.in_forward(call) is None and not _is_function_of_tensors(module, call, source):
            continue
        if _is_constant_tensor(module, source):
            continue
        if not _WHOLE.search(f"{ast.unparse(source)} {target}".lower()):
            yield Hit(call)


def _is_function_of_tensors(module: Module, call: ast.Call, source: ast.expr) -> bool:
    """Returns whether a function outside modules sums one of its parameters or local values.

    Examples are ``torch.cumsum(x, -1)`` and ``x.cumsum(dim=-1)``.
    """
    function = module.function(call)
    if function is None or isinstance(module.parents.get(function), ast.ClassDef):
        return False
    if module.dotted(call.func) != "torch.cumsum" and keyword(call, "dim") is None:  # pandas and numpy have cumsum too
        return False
    arguments = function.args
    own = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    return any(isinstance(node, ast.Name) and (node.id in own or module.given(node)) for node in ast.walk(source))


def _is_constant_tensor(module: Module, source: ast.expr) -> bool:
    """Returns whether the values come from ones, zeros or a range: such a sum can be computed once."""
    if isinstance(source, ast.Name):
        given = module.given(source)
        return bool(given) and all(
            isinstance(value, ast.Call) and _is_constant_tensor(module, value) for value in given
        )
    return isinstance(source, ast.Call) and module.dotted(source.func) in {
        f"torch.{name}" for name in ("ones", "zeros", "full", "arange", "ones_like")
    }
