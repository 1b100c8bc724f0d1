"""Remedies that several analyzers offer, for the trace's backend and merged with the existing settings.

None means "does not apply here": settings that are already in effect are never recommended.
"""

from __future__ import annotations

from memdiag.analyzers.support.allocator_settings import NPU_EXCLUDED, AllocatorSettings
from memdiag.diagnosis import remedies as shared
from memdiag.results.finding import Fix
from memdiag.text import joined, phrase
from memdiag.units import MIB

# The parser requires more than 10; expandable segments need an even number of MiB (pages of 2 MiB).
SMALLEST_PAGE_MB = 12


def expandable_segments(settings: AllocatorSettings) -> Fix | None:
    """Returns how to enable expandable segments, or None if they are enabled or not supported."""
    if settings.expandable or not settings.can_change:
        return None
    dropped = [key for key in NPU_EXCLUDED if key in settings.keys] if settings.backend == "npu" else []
    return shared.expandable_segments(
        settings.line({"expandable_segments": "True"}), settings.backend or "cuda", dropped
    )


def smaller_pages(settings: AllocatorSettings) -> Fix | None:
    """Returns how to reduce the page size of expandable segments, or None if that is not possible."""
    if not settings.expandable or not settings.can_change:
        return None
    if settings.keys.get("page_size", "").lower() == "1g":
        return Fix(
            phrase("remedies.pages.1g"),
            "env",
            settings.line({"page_size": None}),
            phrase("remedies.pages.1g.when"),
            phrase("remedies.pages.1g.caveat"),
        )
    if settings.page_bytes(small=False) <= SMALLEST_PAGE_MB * MIB:
        return None
    return Fix(
        phrase("remedies.pages", new=SMALLEST_PAGE_MB, old=settings.page_bytes(small=False) // MIB),
        "env",
        settings.line({"large_segment_size_mb": str(SMALLEST_PAGE_MB), "segment_size_mb": None}),
        phrase("remedies.pages.when"),
        phrase("remedies.pages.caveat"),
    )


def max_split_size(settings: AllocatorSettings, request_bytes: int) -> Fix | None:
    """Returns how to keep blocks of the size of a request from being split, or None if that is not possible."""
    return split_limit(settings, request_bytes // MIB)


def split_limit(settings: AllocatorSettings, limit_mb: int) -> Fix | None:
    """Returns how to stop the allocator from splitting large blocks, or None if that is not possible."""
    smallest = settings.page_bytes(small=False) // MIB
    if settings.expandable or not settings.can_change or "max_split_size_mb" in settings.keys or limit_mb <= smallest:
        return None
    return shared.max_split_size(
        settings.line({"max_split_size_mb": str(limit_mb)}), limit_mb, phrase("remedies.split.when")
    )


def rounded_sizes(settings: AllocatorSettings, divisions: int) -> Fix | None:
    """Returns how to round request sizes so that cached blocks fit the next ones, or None if that is already set."""
    if not settings.can_change or "roundup_power2_divisions" in settings.keys:
        return None
    return Fix(
        phrase("remedies.round", divisions=divisions),
        "env",
        settings.line({"roundup_power2_divisions": str(divisions)}),
        phrase("remedies.round.when"),
        phrase("remedies.round.caveat"),
    )


def default_placement(settings: AllocatorSettings, placing: tuple[str, ...]) -> Fix | None:
    """Returns how to remove the settings that affect block placement, or None if there are none.

    Args:
        settings: Settings of the trace.
        placing: Keys that affect block placement.
    """
    mine = [key for key in placing if key in settings.keys]
    if not mine or not settings.can_change:
        return None
    keys = joined(mine, phrase("remedies.and"))
    return Fix(phrase("remedies.placement", keys=keys), "env", settings.line(dict.fromkeys(mine)))


def long_lived_first(what: str) -> Fix:
    """Returns the change to the program that keeps long-lived tensors out of the segments of short-lived ones."""
    return Fix(
        phrase("remedies.together", what=what),
        "code",
        "",
        phrase("remedies.every"),
        phrase("remedies.together.caveat"),
    )
