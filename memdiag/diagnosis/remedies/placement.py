"""Changes to the program that let the allocator reuse its memory: allocation order, sizes, and release of the cache."""

from __future__ import annotations

from memdiag.diagnosis.remedies.model import Plain, Situation, of_backends
from memdiag.results.finding import Fix
from memdiag.results.lazy_fix import LazyFix
from memdiag.text import phrase


class _LongLivedFirst:
    """Allocates long-lived tensors first, so that they do not share segments with short-lived ones."""

    key = "remedies.together"

    def offer(self, _situation: Situation) -> Fix | None:
        """Returns the change for all long-lived tensors."""
        return self.of(phrase("remedies.together.long"))

    def of(self, what: str) -> Fix:
        """Returns the change for the tensors named by ``what``."""
        return LazyFix("remedies.together", "code", values={"what": what}, when="remedies.every").fix()


class _EmptyCache:
    """Releases segments without a live tensor to the device."""

    key = "remedies.empty-cache"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the call."""
        return LazyFix("remedies.empty-cache", "code", _call(situation)).fix()


class _LeaveCache:
    """Keeps the cache, because the next requests reuse it."""

    key = "remedies.leave-cache"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the advice, with the call that releases the cache if another library or process needs the memory."""
        return LazyFix("remedies.leave-cache", "code", _call(situation)).fix()


class _BeforeWaking:
    """Releases cached memory before sleeping pools wake and map their memory again."""

    key = "remedies.waking"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the call; None if no pools can be asleep."""
        if not situation.facts.oversubscribed or situation.facts.pool <= 0:
            return None
        return LazyFix("remedies.waking", "code", f"{situation.module}.empty_cache()").fix()


_SMALL_PASSES = "w = torch.nn.Linear(8, 8).cuda(); w(w.weight).sum().backward()"


def _call(situation: Situation) -> str:
    return f"torch.{situation.backend}.empty_cache()" if situation.backend in {"cuda", "npu"} else ""


WORKSPACES_FIRST = Plain(LazyFix("remedies.workspaces-first", "code", _SMALL_PASSES), of_backends("cuda", "hip"))
LONG_LIVED_FIRST = _LongLivedFirst()
EMPTY_CACHE = _EmptyCache()
LEAVE_CACHE = _LeaveCache()
BEFORE_WAKING = _BeforeWaking()
PADDED_INPUTS = Plain(LazyFix("remedies.pad", "code"))
STEADY_SIZES = Plain(LazyFix("remedies.steady", "code"))
