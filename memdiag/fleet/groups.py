"""Groups ranks that should need the same memory, and finds outliers among them.

Ranks of a job differ: the first stage of a pipeline has the embedding, the last one the head, and earlier stages have
more micro-batches in flight. So ranks are grouped by their parameters, then by their number of live activations, and an
outlier is a rank that differs from the median of its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memdiag.fleet.compare import cause_of, differences, sites
from memdiag.results.fleet import GroupDifference, Outlier, RankGroup
from memdiag.text import joined, phrase
from memdiag.units import MIB, format_bytes

Facts = Mapping[str, Any]
_NEAR = 0.03  # parameters that differ by less are the same part of the model, sharded or padded slightly differently
_SMALL = 0.002  # fraction of all parameters: smaller parts distinguish no ranks
_GAP = 0.05  # between numbers of activations: a larger gap means another number of micro-batches in flight
_LEAST_SHARE, _LEAST = 0.02, MIB  # fraction of the median peak, and bytes: smaller differences are ignored
# Times the median distance from the median: beyond it, a rank is an outlier (four standard deviations).
_SPREAD = 4 * 1.4826
_MOST_ODD, _FEW = 0.25, 4  # of a group that is larger than a few
_MOST_DIFFERENCES = 12
# Of the ranks: with more groups than this, most ranks would have nothing to be compared with.
_MOST_SHARE_OF_GROUPS = 0.5


@dataclass
class _Members:
    """Ranks of one group during construction: ``facts`` by number, ``reference`` with the first one's parameters."""

    reference: Mapping[str, int]
    ranks: list[int] = field(default_factory=list)


def peak_of(facts: Facts) -> int:
    """Returns the reserved peak, else the allocated one, else 0 if neither is known."""
    return int(facts.get("peak_reserved_bytes") or facts.get("peak_allocated_bytes") or 0)


def groups_of(ranks: Mapping[int, Facts]) -> list[RankGroup]:
    """Returns the groups of ranks, in order of their lowest numbers, each compared with the largest."""
    lists = _split(ranks)
    middles = [middle_of(ranks, own) for own in lists]
    typical = max(range(len(lists)), key=lambda number: (len(lists[number]), -number), default=0)
    labels = _labels([ranks[middle] for middle in middles])
    found = []
    for number, (own, middle) in enumerate(zip(lists, middles, strict=True)):
        peaks = [peak_of(ranks[rank]) for rank in own]
        why = ""
        differs: tuple[GroupDifference, ...] = ()
        if number != typical:
            why, differs = _against(ranks[middle], ranks[middles[typical]])
        found.append(
            RankGroup(
                number,
                labels[number],
                tuple(own),
                middle,
                min(peaks),
                peak_of(ranks[middle]),
                max(peaks),
                sum(size for size, _ in ranks[middle].get("parameters", {}).values()),
                _activations(ranks[middle]),
                None if number == typical else typical,
                why,
                differs,
                _apart(ranks, own),
            )
        )
    return found


def middle_of(ranks: Mapping[int, Facts], own: Sequence[int]) -> int:
    """Returns the rank with the median peak (the lower one of two).

    Ranks that ran out of memory are excluded if most did not.
    """
    complete = [rank for rank in own if not ranks[rank].get("failed")]
    own = complete if 2 * len(complete) >= len(own) else own
    ordered = sorted(own, key=lambda rank: (peak_of(ranks[rank]), ranks[rank].get("peak_allocated_bytes") or 0, rank))
    return ordered[(len(own) - 1) // 2]


def odd_ones(ranks: Mapping[int, Facts], groups: Iterable[RankGroup]) -> list[Outlier]:
    """Returns the ranks that differ from the median of their group, merged by cause, the largest difference first."""
    found: list[Outlier] = []
    for group in groups:
        middle = ranks[group.median_rank]
        alike: dict[tuple[str, str, bool], list[tuple[int, str, int]]] = {}
        for rank, curve, delta in _odd_in(ranks, group):
            reserved = curve == "reserved"
            differs = differences(ranks[rank], middle, reserved=reserved)
            cause, _ = cause_of(differs, ranks[rank], middle)
            alike.setdefault((cause, curve, delta > 0), []).append((rank, curve, delta))
        for (cause, curve, _), members in alike.items():
            if len(members) > _MOST_ODD * len(group.ranks) and len(group.ranks) > _FEW:
                continue  # this many are not exceptions
            rank, _, delta = max(members, key=lambda member: (abs(member[2]), -member[0]))
            differs = differences(ranks[rank], middle, reserved=curve == "reserved")
            _, why = cause_of(differs, ranks[rank], middle)
            found.append(
                Outlier(
                    tuple(sorted(member[0] for member in members)),
                    rank,
                    group.median_rank,
                    curve,
                    delta,
                    cause,
                    why,
                    tuple(differs[:_MOST_DIFFERENCES]),
                    sites(ranks[rank], middle),
                )
            )
    return sorted(found, key=lambda odd: (odd.delta_bytes < 0, -abs(odd.delta_bytes), odd.rank))


def _odd_in(ranks: Mapping[int, Facts], group: RankGroup) -> list[tuple[int, str, int]]:
    """Returns (rank, curve, difference) of ranks far from the median of a group.

    Reserved bytes are compared, else allocated bytes.
    """
    found: dict[int, tuple[int, str, int]] = {}
    for curve in ("reserved", "allocated"):
        peaks = {rank: value for rank in group.ranks if (value := ranks[rank].get(f"peak_{curve}_bytes")) is not None}
        if len(peaks) < 2 or group.median_rank not in peaks:
            continue
        middle = peaks[group.median_rank]
        distances = sorted(abs(value - middle) for value in peaks.values())
        usual = distances[(len(distances) - 1) // 2] if len(peaks) > 2 else 0
        limit = max(_SPREAD * usual, _LEAST_SHARE * middle, _LEAST)
        for rank, value in peaks.items():
            if abs(value - middle) > limit and rank not in found:
                found[rank] = (rank, curve, value - middle)
    return [found[rank] for rank in sorted(found)]


def _apart(ranks: Mapping[int, Facts], own: Sequence[int]) -> str:
    """Returns how the rank with the highest peak differs from the one with the lowest, if that is relevant."""
    high = max(own, key=lambda rank: (peak_of(ranks[rank]), -rank))
    low = min(own, key=lambda rank: (peak_of(ranks[rank]), rank))
    why, _ = _against(ranks[high], ranks[low])
    return phrase("fleet.beside", rank=str(high), other=str(low), why=why) if why else ""


def _against(here: Facts, there: Facts) -> tuple[str, tuple[GroupDifference, ...]]:
    """Returns how a group's median rank differs from another's, if that is relevant."""
    delta = peak_of(here) - peak_of(there)
    if abs(delta) <= max(_LEAST_SHARE * peak_of(there), _LEAST):
        return "", ()
    found = differences(here, there)
    return cause_of(found, here, there)[1], tuple(found[:_MOST_DIFFERENCES])


# ------------------------------------------------------------------------------------------------- who belongs together


def _split(ranks: Mapping[int, Facts]) -> list[list[int]]:
    """Returns the numbers of each group.

    Parameters decide; if all differ, their names decide; if these differ too, there is one group.
    """
    numbers = sorted(ranks)
    for near in (_NEAR, None):
        by_model = _by_model(ranks, numbers, near)
        if len(by_model) <= max(_MOST_SHARE_OF_GROUPS * len(numbers), 1) or len(numbers) <= 3:
            break
    else:
        by_model = [numbers]
    found = [own for each in by_model for own in _by_activations(ranks, each)]
    return sorted(found)


def _by_model(ranks: Mapping[int, Facts], numbers: Sequence[int], near: float | None) -> list[list[int]]:
    groups: dict[tuple[str, ...], list[_Members]] = {}
    for rank in numbers:
        held = _notable(ranks[rank])
        alike = groups.setdefault(tuple(sorted(held)), [])
        home = next((each for each in alike if near is None or _is_near(each.reference, held, near)), None)
        if home is None:
            home = _Members(held)
            alike.append(home)
        home.ranks.append(rank)
    return [each.ranks for alike in groups.values() for each in alike]


def _notable(facts: Facts) -> dict[str, int]:
    """Returns the relevant parts of the model by parameters, with their bytes.

    It is empty if a rank's parameters are unknown.
    """
    held = {part: int(size) for part, (size, _) in facts.get("parameters", {}).items()}
    least = _SMALL * sum(held.values())
    return {part: size for part, size in held.items() if size >= least}


def _is_near(one: Mapping[str, int], other: Mapping[str, int], near: float) -> bool:
    return all(abs(size - other[part]) <= near * max(size, other[part]) for part, size in one.items())


def _by_activations(ranks: Mapping[int, Facts], numbers: list[int]) -> list[list[int]]:
    """Divides ranks by their number of live activations, if that takes only a few values.

    Ranks that ran out of memory join the group with the most.
    """
    complete = [rank for rank in numbers if not ranks[rank].get("failed")]
    ordered = sorted(complete, key=lambda rank: (_activations(ranks[rank]), rank))
    levels: list[list[int]] = []
    for rank in ordered:
        own = _activations(ranks[rank])
        if levels and own <= _activations(ranks[levels[-1][-1]]) * (1 + _GAP):
            levels[-1].append(rank)
        else:
            levels.append([rank])
    several = [level for level in levels if len(level) > 1]
    if len(several) < 2:
        return [numbers]
    # a rank without peers becomes an outlier of the nearest group
    for rank in [level[0] for level in levels if len(level) == 1]:
        min(several, key=lambda level: abs(_activations(ranks[level[0]]) - _activations(ranks[rank]))).append(rank)
    max(several, key=len).extend(rank for rank in numbers if ranks[rank].get("failed"))
    return [sorted(level) for level in several]


def _activations(facts: Facts) -> int:
    return sum(number for kind, _, _, number in facts.get("parts", ()) if kind == "activation")


def _labels(middles: Sequence[Facts]) -> list[str]:
    """Returns the parts that each group has and most others lack, in words."""
    if len(middles) < 2:
        return [phrase("fleet.label.all")]
    parts = [_notable(facts) for facts in middles]
    labels: list[str] = []
    for own, facts in zip(parts, middles, strict=True):
        only = [
            part
            for part in sorted(own, key=lambda part: -own[part])
            if sum(part in other for other in parts) <= len(parts) / 2
        ]
        said = [phrase("fleet.label.with", parts=", ".join(only[:2]))] if only else []
        if len({format_bytes(sum(other.values())) for other in parts}) > 1 and own:
            said.append(phrase("fleet.label.parameters", bytes=format_bytes(sum(own.values()))))
        if len({_activations(other) for other in middles}) > 1:
            said.append(phrase("fleet.label.activations", count=_activations(facts)))
        labels.append(joined(said, ", ") if said else phrase("fleet.label.alike"))
    return labels
