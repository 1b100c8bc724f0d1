"""Remedies that several analyzers offer, written for the trace's own backend and merged with what is already set.

None stands for "does not apply here": nothing that is already in effect is ever recommended.
"""

from __future__ import annotations

from memdiag.analyzers.allocator_settings import NPU_EXCLUDED, AllocatorSettings
from memdiag.findings import Fix
from memdiag.units import MIB

# The parser takes more than 10; expandable segments need an even number of MiB (pages of 2 MiB).
SMALLEST_PAGE_MB = 12


def expandable_segments(settings: AllocatorSettings) -> Fix | None:
    """Returns how to turn on expandable segments; None where they are on or unknown to the backend."""
    if settings.expandable or not settings.can_change:
        return None
    change = settings.line({"expandable_segments": "True"})
    if settings.backend == "npu":
        dropped = [key for key in NPU_EXCLUDED if key in settings.keys]
        return Fix(
            "Use expandable segments, which grow and shrink by pages",
            "env",
            change,
            "torch_npu, where driver and CANN support virtual memory",
            "cannot be combined with max_split_size_mb, garbage_collection_threshold"
            + (f" (taken out of the line: {', '.join(dropped)})" if dropped else "")
            + " or MindSpeed's own pools; set it before the device is first used",
        )
    return Fix(
        "Use expandable segments, which grow and shrink by pages",
        "env",
        change,
        "CUDA on Linux, torch >= 2.1",
        "set it before the first allocation; some versions fail with CUDA IPC, CUDA graphs or MemPools of their own",
    )


def smaller_pages(settings: AllocatorSettings) -> Fix | None:
    """Returns how to make the pages of expandable segments smaller; None where that is not possible."""
    if not settings.expandable or not settings.can_change:
        return None
    if settings.keys.get("page_size", "").lower() == "1g":
        return Fix(
            "Go back from 1 GiB pages to pages of 20 MiB",
            "env",
            settings.line({"page_size": None}),
            "torch_npu with page_size:1g set",
            "1 GiB pages make random access faster; measure the step time",
        )
    if settings.page_bytes(small=False) <= SMALLEST_PAGE_MB * MIB:
        return None
    return Fix(
        f"Use pages of {SMALLEST_PAGE_MB} MiB instead of {settings.page_bytes(small=False) // MIB} MiB",
        "env",
        settings.line({"large_segment_size_mb": str(SMALLEST_PAGE_MB), "segment_size_mb": None}),
        "torch >= 2.11, torch_npu >= 2.11",
        "more, smaller map calls; helps only where a few small tensors keep whole pages",
    )


def max_split_size(settings: AllocatorSettings, request_bytes: int) -> Fix | None:
    """Returns how to keep blocks of the size of a request from being split; None where that is not possible."""
    return split_limit(settings, request_bytes // MIB)


def split_limit(settings: AllocatorSettings, limit_mb: int) -> Fix | None:
    """Returns how to stop the allocator from splitting large blocks; None where that is not possible."""
    smallest = settings.page_bytes(small=False) // MIB
    if settings.expandable or not settings.can_change or "max_split_size_mb" in settings.keys or limit_mb <= smallest:
        return None
    return Fix(
        f"Do not split blocks larger than {limit_mb} MiB",
        "env",
        settings.line({"max_split_size_mb": str(limit_mb)}),
        "CUDA and NPU, without expandable segments",
        "smaller requests can then not use large free blocks: other input shapes may need more memory",
    )


def rounded_sizes(settings: AllocatorSettings, divisions: int) -> Fix | None:
    """Returns how to round request sizes so that cached blocks fit the next ones; None where that is set already."""
    if not settings.can_change or "roundup_power2_divisions" in settings.keys:
        return None
    return Fix(
        f"Round sizes up to {divisions} steps between powers of two",
        "env",
        settings.line({"roundup_power2_divisions": str(divisions)}),
        "torch >= 1.13",
        "every request is rounded up: this helps only where sizes change from step to step",
    )


def default_placement(settings: AllocatorSettings, placing: tuple[str, ...]) -> Fix | None:
    """Returns how to take out the settings that decide where blocks lie; None where there are none.

    Args:
        settings: Of the trace.
        placing: Keys that decide where blocks lie.
    """
    mine = [key for key in placing if key in settings.keys]
    if not mine or not settings.can_change:
        return None
    return Fix(f"Remove {' and '.join(mine)} from the allocator settings", "env", settings.line(dict.fromkeys(mine)))


def long_lived_first(what: str) -> Fix:
    """Returns the change to the program that keeps long-lived tensors out of the segments of short-lived ones."""
    return Fix(
        f"Keep {what} together: allocate them before the temporary tensors, or as views into one contiguous buffer",
        "code",
        "",
        "every backend",
        "views keep the whole buffer alive as long as one of them lives",
    )


def present(*fixes: Fix | None) -> tuple[Fix, ...]:
    """Returns the fixes that apply."""
    return tuple(fix for fix in fixes if fix is not None)
