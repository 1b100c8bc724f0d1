"""Conditions and sizes in terms of placeholders: ``tp*pp<=world``, ``tp*dp``.

Only arithmetic, comparisons and and/or/not.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from memdiag.errors import MemdiagError
from memdiag.text import phrase

Value = int | float | str | bool

_TWO: dict[type, Callable[[Value, Value], Value]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_LONGEST = 500  # characters


class Expression:
    """An expression over placeholders.

    Args:
        text: The expression.
        names: The names that it may use.

    Raises:
        MemdiagError: It is not an expression, or uses something else.
    """

    def __init__(self, text: str, names: frozenset[str]) -> None:
        self.text, self._names = text, names
        try:
            if len(text) > _LONGEST:
                raise SyntaxError(text)
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError):
            raise self._refused() from None
        self._check(self._tree)

    def value(self, values: Mapping[str, str]) -> Value:
        """Returns its value for values of the placeholders; those that are whole or decimal numbers count as numbers.

        Raises:
            MemdiagError: It cannot be computed for them.
        """
        try:
            return self._of(self._tree, {name: number(text) for name, text in values.items()})
        except (TypeError, ArithmeticError, ValueError) as error:
            said = " ".join(f"{name}={text}" for name, text in values.items())
            raise MemdiagError(phrase("fit.error.value", text=self.text, values=said, error=str(error))) from None

    def _check(self, tree: ast.expr) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id not in self._names:
                known = ", ".join(sorted(self._names))
                raise MemdiagError(
                    phrase("fit.error.name", text=self.text, name=node.id), phrase("fit.error.name.hint", names=known)
                )
            if isinstance(node, ast.Constant) and not isinstance(node.value, int | float | str):
                raise self._refused()
            if not isinstance(node, _KNOWN):
                raise self._refused()

    def _refused(self) -> MemdiagError:
        return MemdiagError(phrase("fit.error.expression", text=self.text), phrase("fit.error.expression.hint"))

    def _of(self, node: ast.expr, values: Mapping[str, Value]) -> Value:
        match node:
            case ast.Constant(value=constant):
                return constant  # type: ignore[return-value]  # checked before
            case ast.Name(id=name):
                return values[name]
            case ast.BinOp(left=left, op=op, right=right):
                return _TWO[type(op)](self._of(left, values), self._of(right, values))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self._of(operand, values)
            case ast.UnaryOp(operand=operand):
                return -self._of(operand, values)  # type: ignore[operator]  # a TypeError is reported
            case ast.BoolOp(op=op, values=parts):
                found = (bool(self._of(part, values)) for part in parts)
                return all(found) if isinstance(op, ast.And) else any(found)
            case ast.Compare(left=left, ops=ops, comparators=others):
                ends = [self._of(each, values) for each in (left, *others)]
                return all(
                    bool(_TWO[type(op)](one, two)) for op, one, two in zip(ops, ends[:-1], ends[1:], strict=True)
                )
        raise self._refused()


_KNOWN = (
    ast.Constant,
    ast.Name,
    ast.Load,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.Not,
    ast.USub,
    ast.And,
    ast.Or,
    *_TWO,
)


def number(text: str) -> Value:
    """Returns a value as a number if it is one, else as text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
