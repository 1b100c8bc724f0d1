"""One source file as seen by the rules: its syntax tree, parent nodes, and the meaning of names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.While | ast.AsyncFor
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)

# torch_npu, torch.xpu and similar modules provide the functions of torch.cuda under their own name.
DEVICES = (
    "torch.cuda",
    "torch.npu",
    "torch_npu.npu",
    "torch.xpu",
    "torch.mps",
    "torch.accelerator",
    "torch.musa",
    "torch.mlu",
)
# Their forward method runs in the data loader, on the host.
_HOST_CLASSES = re.compile(r"Transform(?!er)|Processor|Tokenizer|Augment|Dataset|Collat|Extractor")
# Methods that a trainer calls once per step.
STEP_METHODS = frozenset({"training_step", "train_step", "forward_step", "compute_loss", "forward_backward_step"})


@dataclass(frozen=True, slots=True)
class Hit:
    """A place found by a rule.

    Attributes:
        node: The syntax node.
        said: The problem in words, or "" for the rule's own title.
        fix: The line to write instead, or "" if it cannot be derived.
        minor: Whether it is shown as info, whatever the rule's severity.
    """

    node: ast.AST
    said: str = ""
    fix: str = ""
    minor: bool = False


class Module:
    """A parsed file.

    Args:
        tree: Its syntax tree.
        text: Its text.
    """

    def __init__(self, tree: ast.Module, text: str) -> None:
        self.tree = tree
        self.text = text
        self.parents: dict[ast.AST, ast.AST] = {}
        self.calls: list[ast.Call] = []
        self.functions: list[Function] = []
        self._names: dict[str, str] = {}
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
            if isinstance(node, ast.Call):
                self.calls.append(node)
            elif isinstance(node, Function):
                self.functions.append(node)
            elif isinstance(node, ast.Import):
                for name in node.names:
                    self._names[name.asname or name.name.partition(".")[0]] = (
                        name.name if name.asname else name.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for name in node.names:
                    self._names[name.asname or name.name] = f"{node.module}.{name.name}"

    def dotted(self, node: ast.AST) -> str:
        """Returns the full name of ``a.b.c`` with imports resolved ("torch.distributed.all_gather"), or ""."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self._names.get(node.id, node.id), *reversed(parts)])

    def called(self, *names: str) -> Iterator[ast.Call]:
        """Returns the calls of functions with these full names."""
        wanted = frozenset(names)
        return (call for call in self.calls if self.dotted(call.func) in wanted)

    def methods(self, *names: str) -> Iterator[ast.Call]:
        """Returns the calls ``x.name(…)`` for any x."""
        wanted = frozenset(names)
        return (call for call in self.calls if isinstance(call.func, ast.Attribute) and call.func.attr in wanted)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Returns the ancestors of a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function(self, node: ast.AST) -> Function | None:
        """Returns the function that contains a node."""
        return next((each for each in self.above(node) if isinstance(each, Function)), None)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """Returns the statement that a node is part of."""
        return next((each for each in (node, *self.above(node)) if isinstance(each, ast.stmt)), None)

    def scope(self, node: ast.AST) -> ast.AST:
        """Returns the function that contains a node, or the whole file."""
        return self.function(node) or self.tree

    def given(self, name: ast.Name) -> list[ast.expr]:
        """Returns the values assigned to a name in the function that contains it."""
        return [
            node.value
            for node in ast.walk(self.scope(name))
            if isinstance(node, ast.Assign)
            and any(isinstance(each, ast.Name) and each.id == name.id for each in node.targets)
        ]

    @cached_property
    def step_loops(self) -> frozenset[ast.AST]:
        """Loops whose body is one training step.

        These are the innermost loops with ``backward()`` and ``step()``, else the innermost with ``backward()``.
        """
        found = set()
        for call in self.methods("backward"):
            loops = [each for each in self._until_scope(call) if isinstance(each, Loop)]
            whole = [loop for loop in loops if any(_is_method(node, "step") for node in inside(loop))]
            found.update(whole[:1] or loops[:1])
        return frozenset(found)

    def in_step(self, node: ast.AST) -> ast.AST | None:
        """Returns the training loop or per-step method that runs a node in every iteration, or None."""
        for each in self.above(node):
            if each in self.step_loops:
                return each
            if isinstance(each, _SCOPES):
                return (
                    each if isinstance(each, Function) and each.name in STEP_METHODS and self._is_method(each) else None
                )
        return None

    def in_forward(self, node: ast.AST) -> Function | None:
        """Returns the ``forward`` of a module, or a method that it calls, that runs a node, or None."""
        function = next((each for each in self.above(node) if isinstance(each, _SCOPES)), None)
        return function if isinstance(function, Function) and function in self.forwards else None

    @cached_property
    def forwards(self) -> frozenset[ast.AST]:
        """Every ``forward`` of a class that looks like a module, and the methods it calls directly or indirectly."""
        found: set[ast.AST] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                own = {each.name: each for each in node.body if isinstance(each, Function)}
                if "forward" in own and self._is_module(node, own):
                    found.update(_reachable(own, "forward"))
        return frozenset(found)

    def guarded(self, node: ast.AST, until: ast.AST) -> bool:
        """Returns whether a node is run only sometimes within ``until``.

        That is the case under a condition, on an error, or after an early exit.
        """
        child: ast.AST = node
        for each in self.above(node):
            if each is until:
                break
            if isinstance(each, (ast.If, ast.IfExp)) and child is not each.test:
                return True
            if isinstance(each, (ast.ExceptHandler, ast.Assert, ast.Raise, ast.Match)):
                return True
            if isinstance(each, ast.BoolOp) and child is not each.values[0]:
                return True
            if isinstance(child, ast.stmt) and any(_may_leave(other) for other in _before(each, child)):
                return True
            child = each
        return isinstance(child, ast.stmt) and any(_may_leave(other) for other in _before(until, child))

    def _is_method(self, function: Function) -> bool:
        return isinstance(self.parents.get(function), ast.ClassDef)

    def _is_module(self, node: ast.ClassDef, own: dict[str, Function]) -> bool:
        bases = [self.dotted(base) for base in node.bases]
        if any(base.endswith("Function") for base in bases):  # torch.autograd.Function: its forward is one operator
            return False
        if _HOST_CLASSES.search(node.name):
            return False
        named = any(base.rpartition(".")[2].endswith(("Module", "PreTrainedModel", "Layer", "Block")) for base in bases)
        return named or ("__init__" in own and any(_is_super_init(each) for each in ast.walk(own["__init__"])))

    def _until_scope(self, node: ast.AST) -> Iterator[ast.AST]:
        for each in self.above(node):
            if isinstance(each, _SCOPES):
                return
            yield each


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """Returns all nodes that run with a node, without the bodies of functions and classes defined in it."""
    waiting = list(ast.iter_child_nodes(node))
    while waiting:
        each = waiting.pop()
        yield each
        if not isinstance(each, _SCOPES):
            waiting.extend(ast.iter_child_nodes(each))


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Returns the value of a keyword argument."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def has_double_star(call: ast.Call) -> bool:
    """Returns whether a call passes ``**options``, which may contain any argument."""
    return any(each.arg is None for each in call.keywords)


def is_constant(node: ast.AST | None, value: object) -> bool:
    """Returns whether a node is exactly this constant."""
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value


def same(one: ast.AST, other: ast.AST) -> bool:
    """Returns whether two expressions are written identically, regardless of reading or assigning."""
    return _key(one) == _key(other)


def last_name(node: ast.AST) -> str:
    """Returns the last part of a name, an attribute or an indexed expression: ``grad`` for ``p.grad[0]``, else ""."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _before(parent: ast.AST, child: ast.stmt) -> list[ast.stmt]:
    """Returns the statements before a statement in the same block."""
    for _, value in ast.iter_fields(parent):
        if isinstance(value, list) and child in value:
            return value[: value.index(child)]
    return []


def _may_leave(statement: ast.stmt) -> bool:
    """Returns whether a condition may end the step or the function here."""
    return isinstance(statement, ast.If) and any(
        isinstance(node, ast.Return | ast.Continue | ast.Break) for node in statement.body
    )


def _key(node: ast.AST) -> str:
    return ast.dump(node).replace("ctx=Store()", "ctx=Load()")


def _is_method(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name


def _is_super_init(node: ast.AST) -> bool:
    return _is_method(node, "__init__") and isinstance(node.func.value, ast.Call)  # type: ignore[attr-defined]


def _reachable(own: dict[str, Function], first: str) -> Iterator[Function]:
    waiting, seen = [first], {first}
    while waiting:
        function = own[waiting.pop()]
        yield function
        for node in ast.walk(function):
            if (
                not isinstance(node, ast.Call)
                or not isinstance(node.func, ast.Attribute)
                or not isinstance(node.func.value, ast.Name)
            ):
                continue
            if node.func.value.id == "self" and node.func.attr in own and node.func.attr not in seen:
                seen.add(node.func.attr)
                waiting.append(node.func.attr)
