"""Budgets as written by users: ``peak_reserved=60GiB``, ``stranded=2%``, ``ooms=0``, ``MD201=0``: upper limits."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from memdiag.errors import MemdiagError
from memdiag.gates.metrics import Measured, Metric, in_words, metric_of
from memdiag.results.check import Number
from memdiag.text import phrase
from memdiag.units import parse_bytes

_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")
_NUMBER = re.compile(r"\s*[0-9][0-9_]*(?:\.[0-9]+)?\s*")


@dataclass(frozen=True)
class Budget:
    """Upper limit of a metric: an amount, or a fraction of ``metric.share_of``.

    Attributes:
        metric: The metric.
        amount: Amount in its unit, or None for a fraction.
        share: 0.02 for 2 %, or None for an amount.
    """

    metric: Metric
    amount: Number | None = None
    share: float | None = None

    def limit(self, measured: Measured) -> Number | None:
        """Returns the allowed amount, or None if the value for a fraction is unknown."""
        if self.share is None:
            return self.amount
        whole = measured.reserved_bytes if self.metric.share_of == "reserved" else measured.capacity_bytes
        return None if whole is None else math.floor(self.share * whole)

    def __str__(self) -> str:
        if self.share is None:
            return in_words(self.amount or 0, self.metric.unit)
        return phrase(f"check.share.{self.metric.share_of}", share=f"{self.share * 100:g}%")


def read_budgets(given: Iterable[str], option: str = "--budget") -> list[Budget]:
    """Returns the given budgets: ``NAME=VALUE``, or ``NAME<=VALUE``, separated by commas.

    Raises:
        MemdiagError: A text is not a budget, or its metric is unknown.
    """
    found: dict[str, Budget] = {}
    for text in (part.strip() for item in given for part in item.split(",") if part.strip()):
        name, sign, value = re.sub("<=", "=", text, count=1).partition("=")
        if not sign or not value.strip():
            raise MemdiagError(
                phrase("errors.budget", option=str(option), text=str(text)),
                phrase("errors.budget.hint", option=str(option)),
            )
        budget = read_budget(name, value, f"{option} {text}")
        if budget.metric.name in found:
            raise MemdiagError(
                phrase("errors.budget-twice", option=str(option), text=str(text), name=str(budget.metric.name)),
                phrase("errors.budget-twice.hint"),
            )
        found[budget.metric.name] = budget
    return list(found.values())


def read_budget(name: str, value: object, where: str) -> Budget:
    """Returns the budget of one metric; ``where`` names its origin in errors.

    Raises:
        MemdiagError: The metric is unknown, or the value does not fit it.
    """
    metric = metric_of(name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise MemdiagError(
            phrase("errors.number-or-size", where=str(where)),
            phrase("errors.budget.example", name=str(metric.name), value=str(_example(metric))),
        )
    text = str(value)
    if share := _PERCENT.fullmatch(text):
        if not metric.share_of:
            raise MemdiagError(
                phrase("errors.budget-share", where=str(where), name=str(metric.name)),
                phrase("errors.budget.example", name=str(metric.name), value=str(_example(metric))),
            )
        return Budget(metric, share=float(share[1]) / 100)
    if metric.unit.startswith("bytes"):
        try:
            return Budget(metric, amount=parse_bytes(text.removesuffix("/step")))
        except (MemdiagError, OverflowError):
            raise MemdiagError(
                phrase("errors.size", where=str(where)),
                phrase("errors.budget.example", name=str(metric.name), value=str(_example(metric))),
            ) from None
    if not _NUMBER.fullmatch(text):
        raise MemdiagError(
            phrase("errors.number", where=str(where)),
            phrase("errors.budget.example", name=str(metric.name), value=str(_example(metric))),
        )
    number = float(text.replace("_", ""))
    return Budget(metric, amount=int(number) if number.is_integer() else number)


def _example(metric: Metric) -> str:
    return (
        "2MiB"
        if metric.unit == "bytes/step"
        else "60GiB"
        if metric.share_of == "device"
        else "2%"
        if metric.share_of
        else "0"
    )
