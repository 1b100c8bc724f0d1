"""Counts computed operators, and the reasons why others were not computed."""

from __future__ import annotations

import threading
from typing import Any

_MOST = 12  # operators by name
_MOST_LETTERS = 160


class Tally:
    """Counts of one process. Concurrent threads may rarely lose a count, which does no harm.

    Attributes:
        limit_bytes: The largest tensor that is computed.
        computed: Operators that were computed; for operators on lists, all tensors of the list.
        partly: Operators on lists of which some tensors were computed.
        unknown: Not computed, since they read an unknown value.
        large: Not computed, since a tensor was too large.
        failed: Not computed, since the CPU failed, or the result has another size than the device's.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.computed = self.partly = self.unknown = self.large = self.failed = 0
        self._failures: dict[str, str] = {}
        self._here = threading.local()

    def begin(self) -> Any:
        """Called when an operator begins, perhaps within another; returns the value to pass to ``end``."""
        outer = getattr(self._here, "within", None)
        self._here.within = []
        return outer

    def end(self, outer: Any, name: str, outcome: str, why: str = "") -> None:
        """Called when an operator has ended.

        If it was computed, the outcomes of nested operators are dropped; otherwise they count instead of it.

        Args:
            outer: Result of ``begin``.
            name: The operator.
            outcome: "computed", "partly", "unknown", "large", "failed", or "" if it is not counted.
            why: The reason of a failure.
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
