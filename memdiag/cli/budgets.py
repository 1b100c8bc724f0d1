"""``--fail-on``: which findings end a command with exit code 1. The same words for every command that has it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

import typer

from memdiag.errors import BUDGET_HIT, MemdiagError
from memdiag.text import phrase

_CODE = re.compile(r"MD[0-9]{3}")
_SEVERITIES = {"warning": ("critical", "warning"), "critical": ("critical",)}


def read_budgets(
    given: Sequence[str] | None, example: str, also: Sequence[str] = (), said: str = "warning, critical nor a code"
) -> list[str]:
    """Returns what was given to ``--fail-on``: severities, codes and the words ``also``, each as it is spelled here.

    Args:
        given: The values, commas between several.
        example: What the hint says.
        also: Words of the command's own.
        said: How the error names what there is.

    Raises:
        MemdiagError: A word is none of them.
    """
    known = {*_SEVERITIES, *also}
    budgets = []
    for word in (word.strip() for item in given or () for word in item.split(",")):
        budget = word.upper() if _CODE.fullmatch(word.upper()) else word.lower().replace("-", "_")
        if budget not in known and not _CODE.fullmatch(budget):
            raise MemdiagError(phrase("errors.fail-on", word=str(word), said=str(said)), example)
        budgets.append(budget)
    return budgets


class Judged(Protocol):
    """A finding, of one trace or of a fleet."""

    @property
    def code(self) -> str:
        """Its code."""

    @property
    def severity(self) -> str:
        """Its severity."""


def over(findings: Iterable[Judged], budgets: Sequence[str]) -> list[str]:
    """Returns the codes of the findings that are over budget, in their order."""
    severities = {severity for budget in budgets for severity in _SEVERITIES.get(budget, ())}
    return [finding.code for finding in findings if finding.severity in severities or finding.code in budgets]


def end_if_hit(hits: Iterable[str]) -> None:
    """Says what was hit and ends the command, if anything was.

    Raises:
        typer.Exit: With exit code 1.
    """
    distinct = list(dict.fromkeys(hits))
    if distinct:
        from memdiag.cli.talk import say

        say(f"--fail-on: {', '.join(distinct)}")
        raise typer.Exit(BUDGET_HIT)
