"""Calls that make the host wait for the device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memdiag.lint.module import DEVICES, Module, is_constant, keyword, last_name

_METHODS = ("item", "tolist", "cpu")  # numpy() works only on the host: the cpu() before it waits
_SYNCHRONIZE = frozenset(f"{device}.synchronize" for device in DEVICES)
_HOST_NAMES = re.compile(r"(^|_)(np|numpy|cpu|host|arr|array|df|list|shapes?|tokenizer|processor)(_|$)")
_MODELS = re.compile(r"(^|_)(model|models|module|net|network|encoder|decoder|self)$")
_MAKERS = (
    "tensor",
    "arange",
    "zeros",
    "ones",
    "full",
    "linspace",
    "empty",
    "as_tensor",
    "from_numpy",
    "rand",
    "randn",
    "randint",
    "randperm",
    "rand_like",
)
_NOT_TENSORS = (
    "numpy",
    "np",
    "pandas",
    "pd",
    "math",
    "random",
    "json",
    "jax",
    "jnp",
    "tf",
    "tensorflow",
    "mx",
    "pa",
    "pyarrow",
)


def waits(module: Module) -> Iterator[tuple[ast.Call, str]]:
    """Yields the calls that wait for the device, with a description.

    A chain (``x.cpu().numpy()``) yields only its innermost call.
    """
    for call in module.calls:
        name = module.dotted(call.func)
        if name in _SYNCHRONIZE:
            yield call, f"{name}()"
        elif isinstance(call.func, ast.Attribute) and (_is_wait(call, call.func.attr) or _to_host(module, call)):
            source = call.func.value
            # a wait in the text of an error does not matter, since execution ends
            in_error = any(isinstance(each, ast.Raise) for each in module.above(call))
            if not in_error and not _of_host(module, source):
                yield call, f"{_short(source)}.{call.func.attr}({', '.join(ast.unparse(each) for each in call.args)})"


def _is_wait(call: ast.Call, method: str) -> bool:
    return method in _METHODS and not call.args and not call.keywords


def _to_host(module: Module, call: ast.Call) -> bool:
    """Returns whether a call is ``x.to("cpu")`` and waits for the copy; moving a whole model is a different case."""
    assert isinstance(call.func, ast.Attribute)  # noqa: S101 - the caller guarantees this; for the type checker
    if (
        call.func.attr != "to"
        or is_constant(keyword(call, "non_blocking"), True)
        or _MODELS.search(last_name(call.func.value))
    ):
        return False
    return any(_is_cpu(module, node) for node in (*call.args[:1], keyword(call, "device")) if node is not None)


def _is_cpu(module: Module, node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and module.dotted(node.func) == "torch.device" and node.args:
        node = node.args[0]
    return is_constant(node, "cpu")


def _of_host(module: Module, source: ast.expr) -> bool:
    """Returns whether a value is surely or probably on the host: not a tensor, or created on or copied to the host."""
    node: ast.AST = source
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        if isinstance(node, ast.Call):
            if _stays_on_host(module, node):
                return True
            node = node.func
        elif isinstance(node, ast.Attribute):
            if node.attr in {"shape", "grad_fn"} or _HOST_NAMES.search(node.attr):
                return True
            node = node.value
        else:
            node = node.value
    if not isinstance(node, ast.Name):
        return isinstance(node, (ast.Constant, ast.List, ast.Tuple, ast.Dict))
    return (
        bool(_HOST_NAMES.search(node.id))
        or module.dotted(node).partition(".")[0] in _NOT_TENSORS
        or _made_on_host(module, node)
    )


def _stays_on_host(module: Module, call: ast.Call) -> bool:
    name = module.dotted(call.func)
    if isinstance(call.func, ast.Attribute) and call.func.attr in {"cpu", "numpy", "tolist", "item", "size"}:
        return True
    if (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "to"
        and call.args
        and is_constant(call.args[0], "cpu")
    ):
        return True
    device = keyword(call, "device")
    on_host = device is None or (isinstance(device, ast.Constant) and device.value == "cpu")
    return name.startswith("torch.") and name.rpartition(".")[2] in _MAKERS and on_host


def _made_on_host(module: Module, name: ast.Name) -> bool:
    """Returns whether the last value of a local name was created on the host, or is a loop index."""
    given = module.given(name)
    return bool(given) and all(
        isinstance(value, (ast.Constant, ast.List, ast.ListComp, ast.Tuple))
        or (
            isinstance(value, ast.Call)
            and (_stays_on_host(module, value) or module.dotted(value.func).partition(".")[0] in _NOT_TENSORS)
        )
        for value in given
    )


def _short(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 and "\n" not in text else text.split("\n")[0][:37] + "…"
