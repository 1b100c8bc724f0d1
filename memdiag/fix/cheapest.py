"""Chooses the cheapest parts of a model to recompute for falling peaks.

Recomputing a part changes the live bytes of a program by the same amount, whichever other parts are recomputed. So the
peak with a set of parts is the maximum of a sum over time, and needs no replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.trace.table import Array

_ALL_SETS = 12  # parts up to which all sets are compared
_CHUNK = 1 << 22  # elements of an intermediate array
_TARGETS = 48
_NEIGHBOURS = 2


@dataclass(frozen=True)
class RecomputableParts:
    """Parts of a model that can be recomputed.

    Attributes:
        live: Live bytes at some moments without recomputation.
        change: Change of them by each part (parts, moments).
        cost: Cost of each part.
        excludes: Whether two parts cannot both be recomputed, because one contains the other (parts, parts).
    """

    live: Array
    change: Array
    cost: Array
    excludes: Array

    @classmethod
    def of(cls, live: Array, change: Array, cost: Array, excludes: Array) -> RecomputableParts:
        """Returns parts with the moments at which some set of them may have its peak.

        A stretch in which no change differs is reduced to the moment with the highest live bytes.
        """
        if not len(cost):
            return cls(live, change, cost, excludes)
        differs = (change[:, 1:] != change[:, :-1]).any(axis=0)
        first = np.append(0, np.flatnonzero(differs) + 1)
        live, change = np.maximum.reduceat(live, first), change[:, first]
        lowest = (live + np.minimum(change, 0).sum(axis=0)).max()  # no set has a lower peak
        possible = live + np.maximum(change, 0).sum(axis=0) >= lowest
        return cls(live[possible], np.ascontiguousarray(change[:, possible]), cost, excludes)

    def peak(self, chosen: Array) -> int:
        """Returns the peak if some parts (bool) are recomputed."""
        return int((self.live + self.change[chosen].sum(axis=0)).max())


@dataclass(frozen=True)
class PartSet:
    """A set of parts.

    Attributes:
        cost: Its cost.
        peak: Peak of the live bytes with it.
        chosen: Numbers of the parts.
    """

    cost: int
    peak: int
    chosen: tuple[int, ...]


def good_sets(parts: RecomputableParts) -> list[PartSet]:
    """Returns all sets of few parts, or good sets of many, by increasing cost."""
    if not len(parts.cost):
        return []
    found = _all_sets(parts) if len(parts.cost) <= _ALL_SETS else _searched(parts)
    return sorted(found, key=lambda each: (each.cost, each.peak, each.chosen))


def cheapest_sets(sets: list[PartSet]) -> list[PartSet]:
    """Returns those of some sets, by increasing cost, that have a lower peak than all cheaper ones."""
    kept: list[PartSet] = []
    for each in sets:
        if not kept or each.peak < kept[-1].peak:
            kept.append(each)
    return kept


def _all_sets(parts: RecomputableParts) -> list[PartSet]:
    count = len(parts.cost)
    sets = (np.arange(1, 1 << count)[:, None] >> np.arange(count) & 1).astype(bool)
    sets = sets[~((sets @ parts.excludes) & sets).any(axis=1)]
    size = max(_CHUNK // max(len(parts.live), 1), 1)
    peaks = [
        (parts.live + sets[at : at + size].astype(np.int64) @ parts.change).max(axis=1)
        for at in range(0, len(sets), size)
    ]
    costs = (sets @ parts.cost).tolist()
    return [
        PartSet(cost, peak, tuple(np.flatnonzero(chosen).tolist()))
        for cost, peak, chosen in zip(costs, np.concatenate(peaks).tolist(), sets, strict=True)
    ]


def _searched(parts: RecomputableParts) -> list[PartSet]:
    """Returns good sets for peaks from the present one to the lowest that the search reaches, and their neighbours."""
    lowest, _ = _fill(parts, int(parts.live.min()) - 1)
    made: dict[tuple[int, ...], PartSet] = {}
    for target in np.linspace(parts.live.max(), parts.peak(lowest), _TARGETS + 1)[1:].tolist():
        chosen, _ = _fill(parts, int(target))
        chosen = _improved(parts, chosen, max(int(target), parts.peak(chosen)))
        for each in (chosen, *_neighbours(parts, chosen)):
            numbers = tuple(np.flatnonzero(each).tolist())
            if numbers and numbers not in made:
                made[numbers] = PartSet(int(parts.cost[each].sum()), parts.peak(each), numbers)
    return list(made.values())


def _neighbours(parts: RecomputableParts, chosen: Array) -> Iterator[Array]:
    """Yields the set without each of its parts, and with another part of the same cost instead."""
    for old in np.flatnonzero(chosen).tolist():
        rest = chosen.copy()
        rest[old] = False
        yield rest
        others = ~chosen & ~parts.excludes[rest].any(axis=0) & (parts.cost <= parts.cost[old])
        for new in np.flatnonzero(others)[:_NEIGHBOURS].tolist():
            swapped = rest.copy()
            swapped[new] = True
            yield swapped


def _fill(parts: RecomputableParts, limit: int) -> tuple[Array, bool]:
    """Adds the part with the best ratio of needed bytes and cost until the peak is within a limit.

    Returns:
        The chosen parts (bool), and whether they reach the limit; else those with the lowest peak on the way.
    """
    chosen = np.zeros(len(parts.cost), bool)
    live, best, best_peak = parts.live.copy(), chosen.copy(), int(parts.live.max())
    while True:
        at = int(live.argmax())
        peak = int(live[at])
        if peak < best_peak:
            best, best_peak = chosen.copy(), peak
        if peak <= limit:
            return chosen, True
        usable = ~chosen & ~parts.excludes[chosen].any(axis=0)
        worth = np.minimum(-parts.change[:, at], peak - limit) / np.maximum(parts.cost, 1)
        worth[~usable | (parts.change[:, at] >= 0)] = -1
        if worth.max() <= 0:
            # a part that contains chosen ones may save more than they do
            inside = parts.excludes & chosen
            larger = ~chosen & (parts.change[:, at] < np.where(inside, parts.change[:, at], 0).sum(1))
            larger &= parts.cost > np.where(inside, parts.cost, 0).sum(1)  # the other way round, this would not end
            if not larger.any():
                return best, best_peak <= limit
            new = int(np.flatnonzero(larger)[parts.change[larger, at].argmin()])
            dropped = chosen & parts.excludes[new]
            live -= parts.change[dropped].sum(axis=0)
            chosen[dropped] = False
        else:
            new = int(worth.argmax())
        chosen[new] = True
        live += parts.change[new]


def _improved(parts: RecomputableParts, chosen: Array, limit: int) -> Array:
    """Drops parts that are not needed, and replaces parts by cheaper ones, while the peak stays within a limit."""
    live = parts.live + parts.change[chosen].sum(axis=0)
    is_better = True
    while is_better:
        is_better = False
        for old in sorted(np.flatnonzero(chosen).tolist(), key=lambda each: -int(parts.cost[each])):
            without = live - parts.change[old]
            if without.max() <= limit:
                chosen[old], live, is_better = False, without, True
                continue
            rest = chosen.copy()
            rest[old] = False
            usable = ~chosen & ~parts.excludes[rest].any(axis=0) & (parts.cost < parts.cost[old])
            at = int(without.argmax())
            usable &= without[at] + parts.change[:, at] <= limit
            for new in sorted(np.flatnonzero(usable).tolist(), key=lambda each: int(parts.cost[each])):
                now = without + parts.change[new]
                if now.max() <= limit:
                    chosen[old], chosen[new], live, is_better = False, True, now, True
                    break
    return chosen
