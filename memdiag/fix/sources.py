"""Reads from source files which local variables the statements of a program use and change."""

from __future__ import annotations

import ast
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_SINGLE = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Attribute, ast.IfExp, ast.BoolOp)
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_MOST_BYTES = 4 << 20  # of a source file


@dataclass(frozen=True, eq=False)
class Statement:
    """A simple statement.

    Attributes:
        first, last: Its lines.
        targets: Local variables that it binds.
        uses: Names in its value.
        binds: Whether it only binds local variables: no attributes or elements.
        deletes: Local variables that it deletes.
        is_single: Whether its value is one object, not a list for example.
        is_chain: Whether each part of its value uses the result of at most one other part.
        is_certain: Whether it runs whenever the lines before and after it in its function run.
        function: Identifies its function.
    """

    first: int
    last: int
    targets: tuple[str, ...]
    uses: frozenset[str]
    binds: bool
    deletes: tuple[str, ...]
    is_single: bool
    is_chain: bool
    is_certain: bool
    function: int


class SourceFile:
    """The simple statements of a file, by line."""

    def __init__(self, statements: list[Statement]) -> None:
        self._statements = sorted(statements, key=lambda each: (each.first, each.last))
        self._at = {line: each for each in self._statements for line in range(each.first, each.last + 1)}

    def at(self, line: int) -> Statement | None:
        """Returns the statement at a line, or None."""
        return self._at.get(line)

    def between(self, before: Statement, line: int) -> Iterator[Statement]:
        """Yields the statements of a function after one of them and before a later line."""
        for each in self._statements:
            if each.first > before.last and each.last < line and each.function == before.function:
                yield each


@lru_cache(maxsize=256)
def source_of(filename: str) -> SourceFile | None:
    """Returns the statements of a Python file, or None if it cannot be read."""
    try:
        with tokenize.open(filename) as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            return None
        with warnings.catch_warnings():  # of Python, about the text
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        return SourceFile(list(_statements(tree, 0, is_certain=True)))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _statements(node: ast.AST, function: int, *, is_certain: bool) -> Iterator[Statement]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _FUNCTION):
            yield from _statements(child, child.lineno, is_certain=True)
        elif isinstance(child, ast.stmt) and not hasattr(child, "body"):
            yield _statement(child, function, is_certain=is_certain)
        else:
            is_plain = isinstance(child, (ast.With, ast.AsyncWith, ast.ClassDef))
            yield from _statements(child, function, is_certain=is_certain and is_plain)


def _statement(node: ast.stmt, function: int, *, is_certain: bool) -> Statement:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    parts = [part for target in targets for part in _parts(target)]
    value = getattr(node, "value", None)
    return Statement(
        node.lineno,
        node.end_lineno or node.lineno,
        tuple(part.id for part in parts if isinstance(part, ast.Name)),
        frozenset(each.id for each in ast.walk(value) if isinstance(each, ast.Name)) if value else frozenset(),
        _is_in_place(node) or (bool(parts) and all(isinstance(part, ast.Name) for part in parts)),
        tuple(each.id for each in node.targets if isinstance(each, ast.Name)) if isinstance(node, ast.Delete) else (),
        isinstance(value, _SINGLE),
        value is not None and _is_chain(value),
        is_certain,
        function,
    )


def _is_in_place(node: ast.stmt) -> bool:
    """Returns whether a statement adds to a tensor, for example; a list or tuple would keep what is added."""
    return isinstance(node, ast.AugAssign) and isinstance(node.value, (*_SINGLE, ast.Name, ast.Constant))


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            yield from _parts(each)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _is_chain(value: ast.expr) -> bool:
    """Returns whether no part of a value needs the results of two other parts."""
    return all(sum(_computes(child) for child in ast.iter_child_nodes(node)) <= 1 for node in ast.walk(value))


def _computes(node: ast.AST) -> bool:
    return any(isinstance(each, (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare)) for each in ast.walk(node))
