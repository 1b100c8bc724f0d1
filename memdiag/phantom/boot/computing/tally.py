"""How many operators were computed, and why the others were not."""

from __future__ import annotations

import threading
from typing import Any

_MOST = 12  # operators by name
_MOST_LETTERS = 160


class Tally:
    """Counts of one process. Two threads may now and then count one for two: nobody decides by it.

    Attributes:
        limit_bytes: The largest tensor that is computed.
        computed: Operators that were computed; of those on lists of tensors, for all of the list.
        partly: Operators on lists of which some tensors were computed.
        unknown: That were not, since they read what nobody knows.
        large: Since a tensor was too large.
        failed: Since the CPU could not do it, or it came out otherwise than the device has room for.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.computed = self.partly = self.unknown = self.large = self.failed = 0
        self._failures: dict[str, str] = {}
        self._here = threading.local()

    def begin(self) -> Any:
        """An operator begins, perhaps within another; returns what ``end`` is to be given."""
        outer = getattr(self._here, "within", None)
        self._here.within = []
        return outer

    def end(self, outer: Any, name: str, outcome: str, why: str = "") -> None:
        """It has ended.

        Where it was computed, what became of those within it does not matter; else they count in its place.

        Args:
            outer: What ``begin`` returned.
            name: The operator.
            outcome: "computed", "partly", "unknown", "large", "failed"; "": it is none that counts.
            why: The reason, where it failed.
        """
        within, self._here.within = self._here.within, outer
        found = within if within and outcome not in {"computed", "partly"} else [(name, outcome, why)]
        if outer is not None:
            outer.extend(found)
            return
        for one, became, reason in found:
            if became:
                setattr(self, became, getattr(self, became) + 1)
            if became == "failed" and len(self._failures) < _MOST:
                self._failures.setdefault(one, reason.strip().partition("\n")[0][:_MOST_LETTERS])

    def facts(self) -> dict[str, Any]:
        """Returns the counts, for the trace."""
        return {
            "limit_bytes": self.limit_bytes,
            "computed": self.computed,
            "partly": self.partly,
            "unknown": self.unknown,
            "large": self.large,
            "failed": self.failed,
            "failures": dict(self._failures),
        }
