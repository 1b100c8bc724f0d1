"""Changes to the program that let the allocator reuse what it has: order and sizes of allocations, and cached memory."""

from __future__ import annotations

from memdiag.diagnosis.remedies.lazy_fix import LazyFix
from memdiag.diagnosis.remedies.model import Plain, Situation
from memdiag.results.finding import Fix
from memdiag.text import phrase


class _LongLivedFirst:
    """Long-lived tensors then stay out of the segments of short-lived ones."""

    key = "remedies.together"

    def offer(self, _situation: Situation) -> Fix | None:
        """Returns the change for all long-lived tensors."""
        return self.of(phrase("remedies.together.long"))

    def of(self, what: str) -> Fix:
        """Returns the change for the tensors that ``what`` names."""
        return LazyFix("remedies.together", "code", values={"what": what}, when="remedies.every").fix()


class _EmptyCache:
    """Segments without a live tensor go back to the device."""

    key = "remedies.empty-cache"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the call."""
        return LazyFix("remedies.empty-cache", "code", _call(situation)).fix()


class _LeaveCache:
    """Cache is no loss: the next requests use it."""

    key = "remedies.leave-cache"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the advice, with the call for when something else needs the memory."""
        return LazyFix("remedies.leave-cache", "code", _call(situation)).fix()


class _BeforeWaking:
    """Pools that were put to sleep map their memory again when they wake."""

    key = "remedies.waking"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the call; None where no pools can be asleep."""
        if not situation.facts.oversubscribed or situation.facts.pool <= 0:
            return None
        return LazyFix("remedies.waking", "code", f"{situation.module}.empty_cache()").fix()


def _call(situation: Situation) -> str:
    return f"torch.{situation.backend}.empty_cache()" if situation.backend in {"cuda", "npu"} else ""


LONG_LIVED_FIRST = _LongLivedFirst()
EMPTY_CACHE = _EmptyCache()
LEAVE_CACHE = _LeaveCache()
BEFORE_WAKING = _BeforeWaking()
PADDED_INPUTS = Plain(LazyFix("remedies.pad", "code"))
STEADY_SIZES = Plain(LazyFix("remedies.steady", "code"))
