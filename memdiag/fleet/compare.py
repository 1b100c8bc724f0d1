"""How one rank differs from another: the memory it holds more of, and the likely cause.

Both are compared at their allocated peaks. Twice as many tensors of a part have another cause (micro-batches in flight,
as in the first stages of a pipeline) than tensors twice as large (longer sequences, more tokens for an expert).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from memdiag.analyzers.support.names import counted_kind, kind_words
from memdiag.fleet.facts import EXPERTS
from memdiag.results.fleet import GroupDifference, SiteDifference
from memdiag.text import Phrase, joined, phrase
from memdiag.units import format_bytes

Facts = Mapping[str, Any]
UNUSED = "unused"
MOST = 8
_OF_MODEL = frozenset({"parameter", "gradient", "optimizer_state"})
_ENDED = 0.7  # of the other's events: it stopped earlier
_NOTABLE = 0.05


def differences(here: Facts, there: Facts, *, reserved: bool = True) -> list[GroupDifference]:
    """Returns all differences, most bytes first; they add up to the difference of the active peaks.

    Args:
        here, there: Facts of two ranks.
        reserved: Whether reserved memory that is not in use counts as a part; then they add up to the difference of the
            reserved peaks.
    """
    mine, others = _parts(here), _parts(there)
    found = []
    for key in sorted(mine.keys() | others.keys()):
        (size, number), (size_there, number_there) = mine.get(key, (0, 0)), others.get(key, (0, 0))
        if size != size_there:
            found.append(GroupDifference(*key, size - size_there, size, size_there, number, number_there))
    if reserved and (own := unused(here)) is not None and (theirs := unused(there)) is not None and own != theirs:
        found.append(GroupDifference(UNUSED, "", own - theirs, own, theirs, 0, 0))
    return sorted(found, key=lambda each: (-abs(each.delta_bytes), each.category, each.part))


def sites(here: Facts, there: Facts) -> tuple[SiteDifference, ...]:
    """Returns the call sites that differ most."""
    mine, others = ({place: size for place, size, _ in facts.get("places", ())} for facts in (here, there))
    more = [SiteDifference(place, mine.get(place, 0) - others.get(place, 0)) for place in mine.keys() | others.keys()]
    return tuple(
        sorted((each for each in more if each.delta_bytes), key=lambda each: (-abs(each.delta_bytes), each.site))[:MOST]
    )


def unused(facts: Facts) -> int | None:
    """Returns the bytes by which the reserved peak exceeds the active peak, or None if unknown."""
    reserved, active = facts.get("peak_reserved_bytes"), facts.get("fullest_active_bytes")
    return None if reserved is None or active is None else max(int(reserved) - int(active), 0)


def cause_of(found: list[GroupDifference], here: Facts, there: Facts) -> tuple[str, str]:
    """Returns the likely cause: a word for programs, and the cause with its numbers for people."""
    total = sum(each.delta_bytes for each in found)
    if _ended(here, there) and total < 0:
        return "ended", _ended_words(here, there)
    if not found or not total:
        return "unknown", phrase("fleet.why.unknown")
    sign = 1 if total > 0 else -1
    sums: dict[str, int] = {}
    for each in found:
        sums[_cause(each)] = sums.get(_cause(each), 0) + each.delta_bytes
    cause = max(sums, key=lambda name: (sums[name] * sign, name))
    own = [each for each in found if _cause(each) == cause and each.delta_bytes * sign > 0]
    if not own:
        return "unknown", phrase("fleet.why.unknown")
    if cause == "larger" and _input_ratio(here, there) is not None:
        cause = "data"
    return cause, _words(cause, own, sums["larger" if cause == "data" else cause], here, there)


def _parts(facts: Facts) -> dict[tuple[str, str], tuple[int, int]]:
    return {(kind, part): (size, number) for kind, part, size, number in facts.get("parts", ())}


def _cause(each: GroupDifference) -> str:
    if each.category == UNUSED:
        return "unused"
    if each.category in _OF_MODEL:
        return "model"
    if each.part.endswith(EXPERTS):
        return "experts"
    if each.category == "collective":
        return "communication"
    if not each.num_tensors or not each.reference_num_tensors:
        return "more"
    number = math.log(each.num_tensors / each.reference_num_tensors)
    size = math.log((each.bytes / each.num_tensors) / (each.reference_bytes / each.reference_num_tensors))
    return "larger" if abs(size) > abs(number) else "more"


def _input_ratio(here: Facts, there: Facts) -> float | None:
    """Returns the ratio of the largest inputs of both ranks, or None if it is 1 or unknown."""
    mine, other = here.get("largest_input_bytes"), there.get("largest_input_bytes")
    if not mine or not other or abs(mine / other - 1) < _NOTABLE:
        return None
    return float(mine / other)


def _ended(here: Facts, there: Facts) -> bool:
    return here.get("num_events", 0) < _ENDED * there.get("num_events", 0) and _last_step(here) < _last_step(there)


def _ended_words(here: Facts, there: Facts) -> Phrase:
    return phrase("fleet.why.ended", step=str(max(_last_step(here), 0)), other=str(_last_step(there)))


def _last_step(facts: Facts) -> int:
    steps = facts.get("steps") or ()
    return int(steps[-1][0]) if steps else -1


def _words(cause: str, own: list[GroupDifference], total: int, here: Facts, there: Facts) -> Phrase:
    """Returns a cause with its numbers, as half a sentence."""
    first, is_more = own[0], total > 0
    amount = phrase("fleet.amount.more" if is_more else "fleet.amount.less", bytes=format_bytes(abs(total)))
    if cause in {"unused", "communication"}:
        return phrase(f"fleet.why.{cause}", amount=amount)
    if cause == "model":
        return phrase("fleet.why.model", amount=amount, what=_named(first))
    if cause == "experts":
        return phrase(
            "fleet.why.experts.more" if is_more else "fleet.why.experts.fewer", amount=amount, what=_named(first)
        )
    if cause == "more":
        counted = counted_kind(first.category, first.num_tensors)
        other = first.reference_num_tensors
        said = phrase("fleet.why.more", amount=amount, counted=counted, part=first.part, other=other)
        if first.category == "activation" and min(first.num_tensors, first.reference_num_tensors):
            return joined((said, phrase("fleet.why.batches.more" if is_more else "fleet.why.batches.fewer")), ", ")
        return said
    times = (first.bytes / first.num_tensors) / (first.reference_bytes / first.reference_num_tensors)
    said = phrase(
        "fleet.why.larger", amount=amount, kind=kind_words(first.category), part=first.part, times=f"{times:.2f}"
    )
    ratio = _input_ratio(here, there)
    if ratio is None:
        return said
    return joined((said, phrase("fleet.why.longer" if ratio > 1 else "fleet.why.shorter", times=f"{ratio:.2f}")), ", ")


def _named(each: GroupDifference) -> str:
    kind = kind_words(each.category)
    return phrase("fleet.of", kind=kind, part=each.part) if each.part else kind
