"""Losses accumulated together with their autograd graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memdiag.lint.module import Hit, Module, inside
from memdiag.results.finding import Severity
from memdiag.text import phrase

CODE = "MD812"
SEVERITY: Severity = "warning"
WORDS = ("backward(",)
CHANGE = "total += loss.detach()"


def check(module: Module) -> Iterator[Hit]:
    """Yields ``total += loss`` and ``losses.append(loss)`` in loops with ``loss.backward()``.

    The sum must begin before the loop.
    """
    for loop in module.step_loops:
        nodes = list(inside(loop))
        losses = {name for node in nodes for name in _backward_of(node)}
        rebound = {name for node in nodes for name in _stored(node)}
        for node in nodes:
            name, total = _kept(node)
            if (
                name in losses
                and total
                and total not in rebound
                and total not in losses
                and not _is_detached(nodes, name)
            ):
                yield Hit(
                    node,
                    phrase("lint.MD812.kept", total=total, name=name),
                    f"{name}.detach()",
                )


def _backward_of(node: ast.AST) -> Iterator[str]:
    """Yields the loss of ``loss.backward()``, ``accelerator.backward(loss)`` or ``scaler.scale(loss).backward()``."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
        and not _of_autograd(node.func)
    ):
        source = node.func.value
        if isinstance(source, ast.Name) and not node.args:
            yield source.id
        given = [*node.args[:1], *(source.args[:1] if isinstance(source, ast.Call) else ())]
        yield from (each.id for each in given if isinstance(each, ast.Name))


def _of_autograd(function: ast.Attribute) -> bool:
    """Returns whether it is torch.autograd.backward, which takes any outputs and their gradients."""
    return ast.unparse(function.value) in {"torch.autograd", "autograd"}


def _stored(node: ast.AST) -> Iterator[str]:
    """Yields names that the loop reassigns: a sum in them does not outlive the step."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    for target in targets:
        yield from (ast.unparse(each) for each in ast.walk(target) if isinstance(each, ast.Name | ast.Attribute))
    if isinstance(node, ast.Delete):
        yield from (ast.unparse(each) for each in node.targets)


def _kept(node: ast.AST) -> tuple[str, str]:
    """Returns the retained loss and the variable that retains it."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.value, ast.Name):
        return node.value.id, ast.unparse(node.target)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        call = node.value
        if node.value.func.attr == "append" and len(call.args) == 1 and isinstance(call.args[0], ast.Name):
            return call.args[0].id, ast.unparse(node.value.func.value)
    return "", ""


def _is_detached(nodes: list[ast.AST], name: str) -> bool:
    """Returns whether the loop assigns a value without a graph to the name (``loss = loss.detach()``)."""
    for node in nodes:
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Name) and each.id == name for each in node.targets
        ):
            calls = [
                each.func.attr
                for each in ast.walk(node.value)
                if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)
            ]
            if {"detach", "item", "float"} & set(calls):
                return True
    return False
