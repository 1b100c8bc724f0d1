"""Allocator settings that decide how large blocks and pages are, and which blocks are split."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.diagnosis.remedies.model import Situation
from memdiag.results.finding import Fix
from memdiag.results.lazy_fix import LazyFix
from memdiag.text import joined, phrase
from memdiag.units import MIB

# The parser accepts values above 10; expandable segments need an even number of MiB (pages of 2 MiB).
SMALLEST_PAGE_MB = 12
_MOST_MB = 1 << 20
_DIVISIONS = 8
# Settings that change the placement of blocks; without them, the allocator uses its default placement.
_PLACING = (
    "expandable_segments",
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "large_segment_size_mb",
    "roundup_power2_divisions",
    "segment_size_mb",
    "base_addr_aligned_kb",
    "page_size",
    "multi_stream_lazy_reclaim",
)


class _SplitLimit:
    """Forbids splitting large blocks (max_split_size_mb), so that they stay available for large requests."""

    key = "remedies.split"
    is_likely = False

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the limit that protects blocks of the request's size from splitting; None if no value does."""
        request, segment = situation.facts.request, situation.facts.requested
        if request is not None:
            return self.limited(situation, request // MIB)
        # the segment is the request rounded up to 2 MiB, and the limit must be below the request itself
        return None if segment is None else self.limited(situation, segment // MIB - 2)

    def limited(self, situation: Situation, limit_mb: int) -> Fix | None:
        """Returns the remedy with a limit in MiB; None if it does not apply or the allocator refuses the limit."""
        if not situation.can_be_set or situation.is_expandable or "max_split_size_mb" in situation.settings:
            return None
        if limit_mb <= situation.large_segment // MIB:
            return None
        limit = min(limit_mb, _MOST_MB)
        line = situation.line({"max_split_size_mb": str(limit)})
        return LazyFix("remedies.split", "env", line, {"limit": limit}).fix()

    def variants(self, situation: Situation) -> Iterator[Fix]:
        """Yields limits of several sizes."""
        for limit_mb in (128, 256, 512):
            fix = self.limited(situation, limit_mb)
            if fix is not None:
                yield fix


class _SmallerPages:
    """Uses smaller pages, so that few live bytes keep less of an expandable segment reserved."""

    key = "remedies.pages"
    is_likely = True

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the page size; None without expandable segments, or if pages already have this size or less."""
        if not situation.is_expandable or not situation.can_be_set:
            return None
        if situation.settings.get("page_size", "").lower() == "1g":
            return LazyFix("remedies.pages.1g", "env", situation.line({"page_size": None})).fix()
        old = situation.large_segment // MIB
        if old <= SMALLEST_PAGE_MB:
            return None
        line = situation.line({"large_segment_size_mb": str(SMALLEST_PAGE_MB), "segment_size_mb": None})
        return LazyFix("remedies.pages", "env", line, {"new": SMALLEST_PAGE_MB, "old": old}).fix()

    def variants(self, situation: Situation) -> Iterator[Fix]:
        """Yields the page size."""
        fix = self.offer(situation)
        if fix is not None:
            yield fix


class _RoundedSizes:
    """Rounds sizes to divisions of a power of two, so that requests of similar sizes can reuse each other's blocks."""

    key = "remedies.round"
    is_likely = False

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the setting; None if sizes are already rounded."""
        if not situation.can_be_set or "roundup_power2_divisions" in situation.settings:
            return None
        line = situation.line({"roundup_power2_divisions": str(_DIVISIONS)})
        return LazyFix("remedies.round", "env", line, {"divisions": _DIVISIONS}).fix()

    def variants(self, situation: Situation) -> Iterator[Fix]:
        """Yields the setting."""
        fix = self.offer(situation)
        if fix is not None:
            yield fix


class _ExactSizes:
    """Removes rounding to divisions of a power of two, so that blocks are no larger than their requests need."""

    key = "remedies.divisions"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the line without the setting; None if it is not set."""
        if not situation.can_be_set or "roundup_power2_divisions" not in situation.settings:
            return None
        return LazyFix("remedies.divisions", "env", situation.line({"roundup_power2_divisions": None})).fix()


class _DefaultPlacement:
    """Removes placement settings: settings that were meant to save memory may cost memory."""

    key = "remedies.placement"
    is_likely = True

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the line without the settings that change the placement of blocks; None if none is set."""
        mine = [key for key in _PLACING if key in situation.settings]
        if not mine or not situation.can_be_set:
            return None
        keys = joined(mine, phrase("remedies.and"))
        return Fix(phrase("remedies.placement", keys=keys), "env", situation.line(dict.fromkeys(mine)))

    def variants(self, situation: Situation) -> Iterator[Fix]:
        """Yields the line."""
        fix = self.offer(situation)
        if fix is not None:
            yield fix


SPLIT_LIMIT = _SplitLimit()
SMALLER_PAGES = _SmallerPages()
ROUNDED_SIZES = _RoundedSizes()
EXACT_SIZES = _ExactSizes()
DEFAULT_PLACEMENT = _DefaultPlacement()
