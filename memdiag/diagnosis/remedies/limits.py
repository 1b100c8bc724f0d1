"""Limits on the memory of a process: raise them, or find out where they are set."""

from __future__ import annotations

from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.remedies.model import Situation
from memdiag.results.finding import Fix
from memdiag.results.lazy_fix import LazyFix
from memdiag.units import format_bytes


class _Raise:
    """Raises the memory limit of the process: the device has more memory than the process may use."""

    key = "remedies.limit"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the call that raises the limit, enough for the request if its size is known.

        None for other frameworks.
        """
        facts, system = situation.facts, situation.system
        if not situation.on_torch or not system.module:
            return None
        if facts.limit is None:
            line = f"{system.module}.set_per_process_memory_fraction(1.0)"
            return LazyFix("remedies.limit.look", "code", line, {"comm": system.comm}).fix()
        share = _enough_share(facts)
        values = {"comm": system.comm, "total": format_bytes(facts.total), "share": share}
        line = f"{system.module}.set_per_process_memory_fraction({share or '1.0'})"
        when = "remedies.limit.enough.when" if share else ""
        return LazyFix("remedies.limit", "code", line, values, when=when).fix()


class _RaiseByVariable:
    """Raises the limit in the environment variable with the allocator settings."""

    key = "remedies.limit.env"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the line; None if this version does not read the limit from the variable."""
        if not situation.can_be_set or not situation.reads_fraction or situation.facts.limit is None:
            return None
        line = situation.line({"per_process_memory_fraction": _enough_share(situation.facts) or "1.0"})
        return LazyFix("remedies.limit.env", "env", line).fix()


def _enough_share(facts: Facts) -> str:
    """Returns the smallest memory fraction, in hundredths, with which the request succeeds.

    Returns "" if the device does not have that much free memory.
    """
    needed, high = facts.missing_below_limit, facts.room_above_limit
    if not facts.total or facts.limit is None or needed is None or (high is not None and needed > high):
        return ""
    hundredths = -(-100 * (facts.limit + needed) // facts.total) + 1
    return f"0.{hundredths:02d}" if hundredths < 100 else "1.0"


RAISE = _Raise()
RAISE_BY_VARIABLE = _RaiseByVariable()
