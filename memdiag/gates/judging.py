"""Compares one metric with its budget, or with the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from memdiag.errors import MemdiagError
from memdiag.gates.baseline import BaselineEntry
from memdiag.gates.budgets import Budget, read_budget
from memdiag.gates.metrics import METRICS, Measured, Metric, in_words
from memdiag.results.check import MetricJudgement, Number
from memdiag.text import Phrase, phrase

SHARE = 0.01  # relative tolerance for bytes
SHARE_OF_CALLS = 0.1  # for driver calls


@dataclass(frozen=True)
class Tolerances:
    """Allowed excess over the baseline.

    Attributes:
        share: Relative tolerance for bytes without their own tolerance.
        own: Tolerances of single metrics: an amount, or a fraction of the previous value. A metric named here is
            watched.
    """

    share: float = SHARE
    own: Mapping[str, Budget] = field(default_factory=dict)

    @property
    def watched(self) -> list[Metric]:
        """The metrics that are compared with a baseline."""
        return [metric for metric in METRICS.values() if metric.is_watched or metric.name in self.own]

    def limit(self, metric: Metric, before: Number) -> tuple[Number, str]:
        """Returns the limit, given the previous value ``before``, and the tolerance in words."""
        own = self.own.get(metric.name)
        if own is not None and own.share is None:
            amount = own.amount or 0
            return before + amount, phrase("check.tolerance", amount=in_words(amount, metric.unit))
        share = own.share if own is not None and own.share is not None else self._share(metric)
        if not share:
            return before, phrase("check.tolerance.none")
        most = before * (1 + share)
        return int(most) if metric.unit == "bytes" else most, phrase("check.tolerance", amount=f"{share * 100:g}%")

    def _share(self, metric: Metric) -> float:
        return self.share if metric.unit == "bytes" else SHARE_OF_CALLS if metric.unit == "count/step" else 0.0


def read_tolerances(given: Iterable[str]) -> Tolerances:
    """Returns the given tolerances: ``2%`` for all bytes, ``stranded=10%``, ``retries=2``.

    Raises:
        MemdiagError: One is invalid, or its metric is unknown.
    """
    share, own = SHARE, {}
    for text in (part.strip() for item in given for part in item.split(",") if part.strip()):
        name, sign, value = text.partition("=")
        where = f"--tolerance {text}"
        if not sign:
            budget = read_budget("stranded", name, where)  # any metric that may be a fraction
            if budget.share is None:
                raise MemdiagError(phrase("check.tolerance.share", where=where), phrase("check.tolerance.share.hint"))
            share = budget.share
            continue
        own_share = value.strip().endswith("%")
        budget = read_budget("stranded", value, where) if own_share else read_budget(name, value, where)
        metric = read_budget(name, "0", where).metric
        own[metric.name] = Budget(metric, budget.amount, budget.share)
    return Tolerances(share, own)


_SEEN = ("stranded", "foreign", "cache")  # free memory is one or the other, depending on the reference request


def against_budget(budget: Budget, measured: Measured) -> MetricJudgement:
    """Judges one metric by its budget."""
    metric, allowed = budget.metric, phrase("check.at_most", budget=str(budget))
    value, limit = measured.value(metric.name), budget.limit(measured)
    if value is None:
        reason = _unknown(metric, measured)
        return MetricJudgement(metric.name, metric.unit, "budget", "unknown", None, limit, None, allowed, reason)
    if limit is None:
        whole = phrase("check.lacks.whole.reserved" if metric.share_of == "reserved" else "check.lacks.whole.device")
        reason = phrase("check.unknown", metric=metric.name, why=whole)
        return MetricJudgement(metric.name, metric.unit, "budget", "unknown", value, None, None, allowed, reason)
    said = phrase("check.is", metric=metric.name, value=in_words(value, metric.unit))
    if metric.name in _SEEN and measured.request_bytes is not None:
        said = phrase(
            "check.is.seen",
            metric=metric.name,
            value=in_words(value, metric.unit),
            request=in_words(measured.request_bytes, "bytes"),
        )
    if value <= limit:
        return MetricJudgement(
            metric.name,
            metric.unit,
            "budget",
            "ok",
            value,
            limit,
            None,
            allowed,
            phrase("check.ok", said=said, allowed=allowed),
        )
    amount = (
        str(budget)
        if budget.share is None
        else phrase("check.budget", budget=str(budget), limit=in_words(limit, metric.unit))
    )
    reason = phrase("check.over", said=said, more=in_words(_rest(value, limit), metric.unit), budget=amount)
    return MetricJudgement(metric.name, metric.unit, "budget", "failed", value, limit, None, allowed, reason)


def against_baseline(
    measured: Measured, entry: BaselineEntry, tolerances: Tolerances
) -> tuple[list[MetricJudgement], list[str]]:
    """Judges the watched metrics by a baseline; also returns lines on those that improved beyond the tolerance."""
    judgements: list[MetricJudgement] = []
    better: list[str] = []
    for metric in tolerances.watched:
        before = entry.metrics.get(metric.name)
        value = measured.value(metric.name)
        if before is None:
            continue  # it was unknown in the baseline, so there is nothing to compare with
        limit, words = tolerances.limit(metric, before)
        allowed = phrase("check.than", tolerance=words, before=in_words(before, metric.unit))
        if value is None:
            reason = _unknown(metric, measured)
            judgements.append(
                MetricJudgement(metric.name, metric.unit, "baseline", "unknown", None, limit, before, allowed, reason)
            )
            continue
        said, was = (in_words(each, metric.unit) for each in (value, before))
        if value > limit:
            share = f" ({value / before - 1:+.1%})" if before else ""
            more = in_words(_rest(value, before), metric.unit)
            facts = {"metric": metric.name, "value": said, "more": f"{more}{share}", "was": was}
            reason = phrase("check.grown", **facts, tolerance=words)
            judgements.append(
                MetricJudgement(metric.name, metric.unit, "baseline", "failed", value, limit, before, allowed, reason)
            )
            continue
        reason = phrase("check.same", metric=metric.name, value=said, was=was)
        judgements.append(
            MetricJudgement(metric.name, metric.unit, "baseline", "ok", value, limit, before, allowed, reason)
        )
        if before - value > limit - before:
            less = f" ({value / before - 1:+.1%})" if before else ""
            amount = f"{in_words(_rest(before, value), metric.unit)}{less}"
            better.append(phrase("check.better", metric=metric.name, value=said, less=amount, was=was))
    return judgements, better


def _unknown(metric: Metric, measured: Measured) -> Phrase:
    return phrase("check.unknown", metric=metric.name, why=measured.unknown.get(metric.name) or phrase("check.lacks"))


def _rest(more: Number, less: Number) -> Number:
    return more - less if isinstance(more, int) and isinstance(less, int) else round(more - less, 2)
