"""Chooses the remedies with which a program fits: those that cost nothing first, and no more than needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from memdiag.fix.base import Proposal, Refusal
from memdiag.fix.by_hand import by_hand
from memdiag.fix.case import FixCase, Given, Peaks
from memdiag.fix.edit import Edit, union
from memdiag.fix.remedies import PROGRAM_REMEDIES

_WORTH = 0.002  # share of a peak that a remedy must save


@dataclass
class FixPlan:
    """The chosen remedies.

    Attributes:
        base: Predicted peaks without a remedy.
        predicted: Predicted peaks with all chosen ones.
        chosen: The chosen remedies.
        alone: All remedies that save something, each with its predicted peaks alone.
        refused: Remedies that the program's structure does not allow.
    """

    base: Peaks
    predicted: Peaks
    chosen: list[Proposal] = field(default_factory=list)
    alone: list[tuple[Proposal, Peaks]] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)


def choose(case: FixCase, *, unsafe: bool, without: Collection[str] = ()) -> FixPlan:
    """Returns the remedies for a program.

    Remedies are added in the order of the registry until the program fits. Then each that is not needed is dropped, the
    costliest first.

    Args:
        case: The recording and the budget.
        unsafe: Whether remedies that change results may be chosen.
        without: Names of remedies to leave out.
    """
    base = case.peaks(Edit())
    plan = FixPlan(base, base)
    if base.fits:
        return plan
    for name in PROGRAM_REMEDIES:
        found = [] if name in without else list(PROGRAM_REMEDIES[name].propose(case))
        plan.refused += [each for each in found if isinstance(each, Refusal)]
        _add(case, plan, name, _proposals(found), unsafe=unsafe)
    if plan.predicted.fits:
        _drop_unneeded(case, plan)
    else:
        plan.refused += by_hand(case)
    return plan


def _add(case: FixCase, plan: FixPlan, name: str, proposals: list[Proposal], *, unsafe: bool) -> None:
    """Adds a remedy to the plan if the program does not fit yet, and the remedy saves something.

    A remedy may save nothing alone but something with others, if they lower a peak at another time.
    """
    first = _least(case, [], proposals) if proposals else None
    alone = None if first is None else _peaks(case, [first])
    if first is not None and alone is not None and not _saves(alone, plan.base):
        first = None
    best = first
    if not plan.predicted.fits:
        if plan.chosen:
            proposals = _proposals(PROGRAM_REMEDIES[name].propose(case.after(_given(plan.chosen))))
            best = _least(case, plan.chosen, proposals) if proposals else None
        if best is not None and (best.is_safe or unsafe):
            together = _peaks(case, [*plan.chosen, best])
            if _saves(together, plan.predicted):
                plan.alone.append((best, alone if best is first and alone else _peaks(case, [best])))
                plan.chosen.append(best)
                plan.predicted = together
                return
    if first is not None and alone is not None:
        plan.alone.append((first, alone))


def _proposals(found: Iterable[Proposal | Refusal]) -> list[Proposal]:
    return [each for each in found if isinstance(each, Proposal)]


def _least(case: FixCase, given: Sequence[Proposal], proposals: Sequence[Proposal]) -> Proposal:
    """Returns the first proposal that fits; if none does, the one with the lowest reserved peak.

    Proposals are ordered by increasing cost, and a later one is assumed to save more.
    """
    low, high = 0, len(proposals) - 1
    while low < high:
        middle = (low + high) // 2
        if _peaks(case, [*given, proposals[middle]]).fits:
            high = middle
        else:
            low = middle + 1
    if len(proposals) > 1 and not _peaks(case, [*given, proposals[low]]).fits:
        return min(proposals, key=lambda each: _peaks(case, [*given, each]).reserved)
    return proposals[low]


def _peaks(case: FixCase, chosen: Sequence[Proposal]) -> Peaks:
    return case.peaks_given(_given(chosen))


def _given(chosen: Sequence[Proposal]) -> Given:
    return Given(
        union([each.edit for each in chosen]),
        next((each.conf for each in chosen if each.conf), None),
        any(each.lifts_fraction for each in chosen),
        next((each.pools for each in chosen if each.pools), None),
    )


def _saves(now: Peaks, before: Peaks) -> bool:
    if now.fits != before.fits:
        return now.fits
    return now.reserved < (1 - _WORTH) * before.reserved or now.allocated < (1 - _WORTH) * before.allocated


def _drop_unneeded(case: FixCase, plan: FixPlan) -> None:
    for each in sorted(plan.chosen, key=lambda one: (-one.moved_bytes, -one.forward_share, plan.chosen.index(one))):
        rest = [other for other in plan.chosen if other is not each]
        if not rest:
            continue
        without = _peaks(case, rest)
        if without.fits:
            plan.chosen, plan.predicted = rest, without
