"""Builds the account of a card from the values of a log, so that its parts sum up to the whole."""

from __future__ import annotations

from typing import Literal

from memdiag.results.serving import PART_KINDS, PartKind, ServingCard, ServingPart, Whole
from memdiag.serving.rules import LogValue
from memdiag.units import GIB

_ROUNDING = GIB // 100  # two decimals of GiB, printed or summed: at most this much per part


class Account:
    """Collects the parts of one card.

    Args:
        who: Name of the card in the log.
    """

    def __init__(self, who: str) -> None:
        self.who = who
        self._parts: list[ServingPart] = []

    @property
    def sum_bytes(self) -> int:
        """Sum of the parts so far."""
        return sum(part.bytes or 0 for part in self._parts)

    def has(self, *kinds: PartKind | tuple[PartKind, ...]) -> bool:
        """Returns whether it has all of these parts; of several in a tuple, one suffices."""
        known = {part.kind for part in self._parts}
        return all(bool(known.intersection((kind,) if isinstance(kind, str) else kind)) for kind in kinds)

    def add(self, kind: PartKind, *readings: LogValue | None) -> None:
        """Adds a part that the log prints, perhaps as several numbers; nothing if one is missing."""
        found = [reading for reading in readings if reading is not None]
        if len(found) == len(readings) and found:
            total = sum(reading.bytes for reading in found)
            self._parts.append(ServingPart(kind, total, "printed", found[0].line, found[0].text))

    def add_computed(
        self, kind: PartKind, size: int | None, of: LogValue | None = None, *, is_given: bool = False
    ) -> None:
        """Adds a part that follows from other numbers.

        Args:
            kind: The part.
            size: Its bytes; None adds nothing.
            of: The number that it was mainly computed from.
            is_given: Whether the size of the card came from the user.
        """
        if size is not None:
            basis: Literal["given", "computed"] = "given" if is_given else "computed"
            line, text = (of.line, of.text) if of else (0, "")
            self._parts.append(ServingPart(kind, size, basis, line, text))

    def close(
        self, total: LogValue | None, rest: PartKind, *, whole: Whole = "card", budget: int | None = None
    ) -> ServingCard:
        """Returns the account.

        Args:
            total: What the parts sum up to; None if unknown. Line 0 means that the user gave it.
            rest: The part that the remainder is.
            whole: What ``total`` is.
            budget: Memory that the engine allows itself, in bytes.
        """
        if total is None:
            self._parts.append(ServingPart("unknown", None, "computed"))
            return ServingCard(self.who, "unknown", None, 0, budget, self._sorted())
        size, left = total.bytes, total.bytes - self.sum_bytes
        basis: Literal["given", "computed"] = "computed" if total.line else "given"
        if left < 0:
            within = -left <= _ROUNDING * max(len(self._parts), 1)
            self._parts.append(ServingPart("rounding" if within else "overlap", left, "computed"))
        elif left:
            self._parts.append(ServingPart(rest, left, basis))
        return ServingCard(self.who, whole, size, total.line, budget, self._sorted())

    def _sorted(self) -> tuple[ServingPart, ...]:
        return tuple(sorted(self._parts, key=lambda part: PART_KINDS.index(part.kind)))
