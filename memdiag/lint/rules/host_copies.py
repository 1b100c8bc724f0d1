"""Copies to the device that the host waits for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memdiag.lint.module import Hit, Module, has_double_star, inside, is_constant, keyword
from memdiag.results.finding import Severity
from memdiag.text import phrase

CODE = "MD805"
SEVERITY: Severity = "info"
WORDS = (".to(", ".cuda(", ".npu(", "non_blocking")
_DEVICE = re.compile(r"(^|_)(device|rank|gpu|npu)(_id|_ids)?$")
_STRING = re.compile(r"(cuda|npu|xpu)(:\d+)?")


def check(module: Module) -> Iterator[Hit]:
    """Yields copies of a training loop's batch, and non_blocking copies from a loader that does not pin memory."""
    for loop in module.step_loops:
        if not isinstance(loop, ast.For | ast.AsyncFor):
            continue
        batch = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        for node in inside(loop):
            if (
                isinstance(node, ast.Call)
                and _copies(module, node)
                and _from_batch(node, loop, batch)
                and not _says(node, "non_blocking")
            ):
                yield Hit(node)
    if any(is_constant(keyword(call, "non_blocking"), True) and _copies(module, call) for call in module.calls):
        for call in module.called("torch.utils.data.DataLoader"):
            pinned = keyword(call, "pin_memory")
            if (pinned is None and not has_double_star(call)) or is_constant(pinned, False):
                yield Hit(call, phrase("lint.MD805.unpinned"), "pin_memory=True")


def _copies(module: Module, call: ast.Call) -> bool:
    """Returns whether a call surely copies a value to a device."""
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in {"cuda", "npu"}:
        return not module.dotted(call.func).startswith("torch")
    if call.func.attr != "to":
        return False
    given = [*call.args[:1], keyword(call, "device")]
    return any(_is_device(module, node) for node in given if node is not None)


def _is_device(module: Module, node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(_STRING.fullmatch(node.value))
    if isinstance(node, ast.JoinedStr):
        first = node.values[0] if node.values else None
        return isinstance(first, ast.Constant) and str(first.value).startswith(("cuda", "npu", "xpu"))
    if isinstance(node, ast.Call):
        return module.dotted(node.func).endswith(("torch.device", "current_device"))
    return bool(_DEVICE.search(module.dotted(node).rpartition(".")[2]))


def _from_batch(call: ast.Call, loop: ast.AST, batch: set[str]) -> bool:
    """Returns whether the copied value comes from the loop's items, directly or through a comprehension."""
    assert isinstance(call.func, ast.Attribute)  # noqa: S101 - _copies() guarantees this; for the type checker
    known = set(batch)
    for node in inside(loop):
        if isinstance(node, ast.comprehension) and _root(node.iter) in known:
            known |= {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
    return _root(call.func.value) in known


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript) or (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _says(call: ast.Call, name: str) -> bool:
    return keyword(call, name) is not None or has_double_star(call) or len(call.args) > (2 if _is_to(call) else 1)


def _is_to(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "to"
