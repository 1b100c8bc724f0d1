"""Operators that treat each tensor of a list alike, as optimizers use them.

They are computed for the tensors whose inputs are all known.
"""

from __future__ import annotations

from typing import Any, Optional

from .operator import READ, Operator, TooLarge, Unknown, Work

_BY_LISTS = ("_foreach_", "_fused_adam", "_fused_sgd", "_fused_adagrad", "_amp_foreach_")


def is_by_lists(name: str, operator: Any) -> bool:
    """Returns whether an operator is one of these."""
    first = operator._schema.arguments[0] if operator._schema.arguments else None
    return (
        name.startswith(_BY_LISTS)
        and first is not None
        and str(first.type) == "List[Tensor]"
        and "out" not in name.partition(".")[2]
    )


class ListOperator(Operator):
    """A list operator. Other tensors among its arguments (a rate, a scale) must always be known."""

    def _look(self, work: Work, args: Any, kwargs: Any) -> None:
        given = {at: args[at] if at < len(args) else kwargs.get(name) for at, name, *_ in self.tensors}
        fates = {at: fate for at, _, fate, _ in self.tensors}
        names = {at: name for at, name, *_ in self.tensors}
        self._changed(work, given, fates)
        count = len(args[0])
        along = [at for at, value in given.items() if isinstance(value, (list, tuple)) and len(value) == count]
        copies, why = self._copies([given[at] for at in along], count)
        if not copies:
            raise why or Unknown
        work.args, work.kwargs = list(args), dict(kwargs)
        for place, at in enumerate(along):
            self._put(work, at, names[at], [found[place] for found in copies.values()], args)
            if fates[at] != READ:
                work.targets.extend((given[at][number], found[place]) for number, found in copies.items())
        for at, value in given.items():
            if value is None or at in along:
                continue
            copied = [
                self._copy(work, tensor, fates[at])
                for tensor in (value if isinstance(value, (list, tuple)) else [value])
            ]
            self._put(work, at, names[at], copied if isinstance(value, (list, tuple)) else copied[0], args)
        for at, value in enumerate(work.args):
            if at not in given and isinstance(value, (list, tuple)) and len(value) == count:  # a number for each tensor
                work.args[at] = [value[number] for number in copies]
        work.numbers = list(copies) if len(copies) < count else None

    def _changed(self, work: Work, given: dict[int, Any], fates: dict[int, int]) -> None:
        for at, value in given.items():
            if fates[at] != READ and value is not None:
                tensors = value if isinstance(value, (list, tuple)) else [value]
                work.changed.extend(tensor for tensor in tensors if tensor is not None and tensor.device.type != "cpu")

    def _copies(self, lists: list[Any], count: int) -> tuple[dict[int, list[Any]], Optional[type[Exception]]]:
        """Returns copies of the tensors at each index where all are known, and why the others are missing."""
        contents = self.machine.contents
        copies: dict[int, list[Any]] = {}
        why: Optional[type[Exception]] = None
        for number in range(count):
            tensors = [tensors[number] for tensors in lists]
            if not all(contents.is_small(tensor) for tensor in tensors):
                why = why or TooLarge
                continue
            found = [tensor if tensor.device.type == "cpu" else contents.read(tensor) for tensor in tensors]
            if any(copy is None for copy in found):
                why = why or Unknown
            else:
                copies[number] = found
        return copies, why

    def _wanted(self, work: Work, answers: Any) -> Any:
        return answers if work.numbers is None or answers[0] is None else [answers[number] for number in work.numbers]

    def _store(self, work: Work, results: Any, answers: Any) -> None:
        if work.numbers is not None:
            computed = {id(tensor) for tensor, _ in work.targets}
            for tensor in work.changed:
                if id(tensor) not in computed:
                    self.machine.contents.forget(tensor)
        super()._store(work, results, answers)
