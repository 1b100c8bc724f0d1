"""Assigns rank numbers to files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memdiag.fleet.files import number_of
from memdiag.text import phrase
from memdiag.units import format_ranges


def assign(names: Sequence[str], facts: Sequence[dict[str, Any]]) -> tuple[list[int], list[str]]:
    """Returns a number for each file, and remarks on duplicate numbers.

    The number comes from the recording, else from the file's name, else from its position. The first file with a number
    keeps it; others with the same number get numbers above the highest one.
    """
    wanted = [
        fact.get("rank") if isinstance(fact.get("rank"), int) else number_of(name)
        for name, fact in zip(names, facts, strict=True)
    ]
    if all(number is None for number in wanted):
        return list(range(len(names))), []
    taken: dict[int, int] = {}
    late: list[int] = []
    for at, number in enumerate(wanted):
        if number is None or number in taken:
            late.append(at)
        else:
            taken[number] = at
    free = max(taken) + 1
    numbers = [0] * len(names)
    for number, at in taken.items():
        numbers[at] = number
    twice: dict[int, list[int]] = {}
    silent: list[int] = []
    for number, at in enumerate(late, start=free):
        numbers[at] = number
        same = wanted[at]
        (silent if same is None else twice.setdefault(same, [])).append(number)
    return numbers, [_same(rank, own, names, numbers, names[taken[rank]]) for rank, own in twice.items()] + [
        phrase("fleet.number.unknown", file=_named(own, names, numbers), ranks=format_ranges(own))
        for own in [silent]
        if own
    ]


def _same(rank: int, own: list[int], names: Sequence[str], numbers: Sequence[int], first: str) -> str:
    facts = {"file": _named(own, names, numbers), "rank": str(rank), "first": first, "ranks": format_ranges(own)}
    return phrase("fleet.number.same", **facts)


def _named(own: list[int], names: Sequence[str], numbers: Sequence[int]) -> str:
    """Returns the name of a file, or the number of files and the first name."""
    first = names[numbers.index(own[0])]
    return first if len(own) == 1 else phrase("fleet.number.files", count=len(own), first=first)
