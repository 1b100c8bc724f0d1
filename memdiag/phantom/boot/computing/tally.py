"""How many operators were computed, and why the others were not."""

from __future__ import annotations

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

    def fail(self, operator: str, why: object) -> None:
        """Counts an operator that the CPU could not do."""
        self.failed += 1
        if len(self._failures) < _MOST and operator not in self._failures:
            text = str(why).strip().splitlines()
            self._failures[operator] = (text[0] if text else type(why).__name__)[:_MOST_LETTERS]

    def facts(self) -> dict[str, Any]:
        """Returns the counts, for the trace."""
        return {
            "limit_bytes": self.limit_bytes, "computed": self.computed, "partly": self.partly, "unknown": self.unknown, "large": self.large,
            "failed": self.failed, "failures": dict(self._failures),
        }  # fmt: skip
