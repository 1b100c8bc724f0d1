"""Numbers of ranks: which file has which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memdiag.fleet.files import number_of


def assign(names: Sequence[str], facts: Sequence[dict[str, Any]]) -> tuple[list[int], list[str]]:
    """Returns a number for each file, and what to say about numbers that are there twice.

    The recording itself says the number, else the file's name does, else its place among the files. Of files with the same number the
    first keeps it; the others get numbers beyond the highest.
    """
    wanted = [fact.get("rank") if isinstance(fact.get("rank"), int) else number_of(name) for name, fact in zip(names, facts, strict=True)]
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
    said = []
    for number, at in enumerate(late, start=free):
        numbers[at] = number
        same = wanted[at]
        if same is not None:
            said.append(f"{names[at]} is called rank {same}, as {names[taken[same]]} is: it is listed as {number}")
        else:
            said.append(f"nothing says which rank {names[at]} is: it is listed as {number}")
    return numbers, said
