"""Chooses the remedies with which a program fits: those that cost nothing first, and no more than needed.

Remedies that cost time are chosen in several ways (see ``_PlanSearch``), and the cheapest plan is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from memdiag.fix.base import Proposal, Refusal
from memdiag.fix.by_hand import by_hand
from memdiag.fix.case import FixCase, Given, Peaks
from memdiag.fix.edit import Edit, union
from memdiag.fix.remedies import PROGRAM_REMEDIES, micro_batches

_WORTH = 0.002  # share of a peak that a remedy must save
_ADJUSTABLE = {"checkpoint", "offload-saved"}  # which propose no more than other remedies leave to do


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

    Remedies are added in the order of the registry until the program fits. Then other sets are tried, and the cheapest
    one with which the program fits is kept.

    Args:
        case: The recording and the budget.
        unsafe: Whether remedies that change results may be chosen.
        without: Names of remedies to leave out.
    """
    base = case.peaks(Edit())
    plan = FixPlan(base, base)
    if base.fits:
        return plan
    for name in (each for each in PROGRAM_REMEDIES if each not in without):
        found = list(PROGRAM_REMEDIES[name].propose(case))
        plan.refused += [each for each in found if isinstance(each, Refusal)]
        _add(case, plan, name, _proposals(found), unsafe=unsafe)
    if plan.predicted.fits:
        _PlanSearch(case, plan, unsafe=unsafe).improve()
        return plan
    _drop_useless(case, plan)
    if not any(each.name == micro_batches.NAME for each, _ in plan.alone):
        plan.refused += by_hand(case)
    return plan


def _drop_useless(case: FixCase, plan: FixPlan) -> None:
    """Removes remedies that save nothing together with those that were added after them."""
    for each in list(plan.chosen):
        others = [other for other in plan.chosen if other is not each]
        without = _peaks(case, others)
        if others and without.reserved <= plan.predicted.reserved:
            plan.chosen, plan.predicted = others, without


def with_whole_budget(case: FixCase, plan: FixPlan) -> FixPlan:
    """Returns a plan that was chosen with memory to spare, with the peaks that are predicted for the whole budget.

    With more memory, PyTorch keeps cached segments longer, so the reserved peaks differ.
    """
    alone = [(each, _peaks(case, [each])) for each, _ in plan.alone]
    return replace(plan, base=case.peaks(Edit()), predicted=_peaks(case, plan.chosen), alone=alone)


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


class _PlanSearch:
    """Tries other sets of remedies than the first one that fits.

    A remedy that was added early may do more than is needed with later ones: ``checkpoint`` recomputes most of a model
    if it is not enough alone. So the remedies that cost time are proposed again in each combination, those first whose
    cost is fixed. The search tries all parts of each combination that fits.
    """

    def __init__(self, case: FixCase, plan: FixPlan, *, unsafe: bool) -> None:
        self.case, self.plan, self.order = case, plan, list(PROGRAM_REMEDIES)
        usable = {each.name: each for each in [*(one for one, _ in plan.alone), *plan.chosen] if each.is_safe or unsafe}
        self.free = [each for each in plan.chosen if not each.cost_us]
        costly = [name for name, each in usable.items() if each.cost_us]
        self.costly = sorted(costly, key=lambda name: (name in _ADJUSTABLE, self.order.index(name)))
        first = [each for each in plan.chosen if each.cost_us]
        self.made: dict[tuple[str, ...], Proposal | None] = {
            tuple(one.name for one in first[: at + 1]): each for at, each in enumerate(first)
        }
        self.replayed: dict[frozenset[int], tuple[Peaks, Sequence[Proposal]]] = {}

    def improve(self) -> None:
        """Keeps the cheapest plan."""
        best = self.cheapest_part(self.plan.chosen, self.plan.chosen)
        for count in range(1, len(self.costly) + 1):
            for names in combinations(self.costly, count):
                found = self.proposed(names, best)
                if found is not None:
                    best = self.cheapest_part(found, best)
        best = self.renewed(best)
        self.plan.chosen, self.plan.predicted = best, self.peaks(best)
        listed = {id(each) for each, _ in self.plan.alone}
        changed = {each.name: each for each in best if id(each) not in listed}
        self.plan.alone = [
            (changed[each.name], self.peaks([changed[each.name]])) if each.name in changed else (each, alone)
            for each, alone in self.plan.alone
        ]

    def renewed(self, chosen: Sequence[Proposal]) -> list[Proposal]:
        """Proposes remedies again that were proposed together with other ones than those that are chosen now.

        With the fused kernel of an optimizer, for example, offloading its states predicts no temporary tensors.
        """
        made = []
        for each in chosen:
            others = _given([other for other in chosen if other is not each])
            again = [] if each.name in _ADJUSTABLE else PROGRAM_REMEDIES[each.name].propose(self.case.after(others))
            same = (one for one in _proposals(again) if (one.settings, one.conf) == (each.settings, each.conf))
            made.append(next(same, each))
        return made if self.peaks(made).fits else list(chosen)

    def cost(self, chosen: Sequence[Proposal]) -> tuple[int, int, int, list[int]]:
        """Returns what to compare: changed results, time, the number of remedies, and their places in the registry."""
        places = sorted((self.order.index(each.name) for each in chosen), reverse=True)
        return sum(not each.is_safe for each in chosen), sum(each.cost_us for each in chosen), len(chosen), places

    def proposed(self, names: tuple[str, ...], best: Sequence[Proposal]) -> list[Proposal] | None:
        """Returns the free remedies and some others, or None if they do not fit or cost more than the best ones."""
        chosen = list(self.free)
        for at, name in enumerate(names):
            key = names[: at + 1]
            if key not in self.made:
                proposals = _proposals(PROGRAM_REMEDIES[name].propose(self.case.after(_given(chosen))))
                self.made[key] = _least(self.case, chosen, proposals) if proposals else None
            made = self.made[key]
            if made is None:
                return None
            chosen.append(made)
            if self.cost(chosen)[:2] > self.cost(best)[:2]:
                return None
        chosen.sort(key=lambda each: self.order.index(each.name))
        return chosen if self.peaks(chosen).fits else None

    def cheapest_part(self, chosen: Sequence[Proposal], best: Sequence[Proposal]) -> list[Proposal]:
        """Returns the cheapest part of a set that fits, or the best set so far if that is cheaper.

        A remedy without which the program does not fit is in all parts that fit.
        """
        rest = {id(each): [other for other in chosen if other is not each] for each in chosen}
        needed = [each for each in chosen if not rest[id(each)] or not self.peaks(rest[id(each)]).fits]
        others = [each for each in chosen if each not in needed]
        parts = [[*needed, *part] for count in range(len(others) + 1) for part in combinations(others, count)]
        for part in sorted(parts, key=self.cost):
            if self.cost(part) >= self.cost(best):
                break
            if part and self.peaks(part).fits:
                return sorted(part, key=lambda each: self.order.index(each.name))
        return list(best)

    def peaks(self, chosen: Sequence[Proposal]) -> Peaks:
        """Replays a set of remedies once."""
        ids = frozenset(map(id, chosen))
        if ids not in self.replayed:
            self.replayed[ids] = _peaks(self.case, chosen), chosen  # as long as these live, their numbers are theirs
        return self.replayed[ids][0]
