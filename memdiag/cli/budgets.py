"""``--fail-on``: the conditions under which a command exits with status 1, with equal values for all commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import typer

from memdiag.errors import BUDGET_HIT, MemdiagError
from memdiag.text import Phrase, phrase

_CODE = re.compile(r"MD[0-9]{3}")
_SEVERITIES = {"warning": ("critical", "warning"), "critical": ("critical",)}


def read_budgets(
    given: Sequence[str] | None,
    hint: Phrase,
    also: Sequence[str] = (),
    said: str = "warning, critical",
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Returns the conditions of ``--fail-on`` in normal spelling: severities, finding codes, or words in ``also``.

    Args:
        given: The values; one value may hold several conditions, separated by commas.
        hint: The hint of the error.
        also: Further conditions of the command.
        said: The valid conditions other than codes, in the words of the error.
        aliases: Older names of conditions, and the conditions that they stand for.

    Raises:
        MemdiagError: A condition is unknown.
    """
    known = {*_SEVERITIES, *also}
    budgets = []
    for word in (word.strip() for item in given or () for word in item.split(",")):
        budget = word.upper() if _CODE.fullmatch(word.upper()) else word.lower().replace("-", "_")
        budget = aliases.get(budget, budget)
        if budget not in known and not _CODE.fullmatch(budget):
            raise MemdiagError(phrase("errors.fail-on", word=str(word), said=said), hint)
        budgets.append(budget)
    return budgets


class Judged(Protocol):
    """A finding of one trace or of a fleet."""

    @property
    def code(self) -> str:
        """Code of the finding."""

    @property
    def severity(self) -> str:
        """Severity of the finding."""


def over(findings: Iterable[Judged], budgets: Sequence[str]) -> list[str]:
    """Returns the codes of the findings that match a condition, in the order of the findings."""
    severities = {severity for budget in budgets for severity in _SEVERITIES.get(budget, ())}
    return [finding.code for finding in findings if finding.severity in severities or finding.code in budgets]


def end_if_hit(hits: Iterable[str]) -> None:
    """Prints the matched conditions and ends the command, if any condition matched.

    Raises:
        typer.Exit: A condition matched; the exit status is 1.
    """
    distinct = list(dict.fromkeys(hits))
    if distinct:
        from memdiag.cli.talk import say

        say(f"--fail-on: {', '.join(distinct)}")
        raise typer.Exit(BUDGET_HIT)
