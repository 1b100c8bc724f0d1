"""PyTorch's CUDA caching allocator with expandable segments, whatever else is set."""

from __future__ import annotations

from memdiag.allocator.policies.caching.policy import BACKEND, columns

__all__ = ["BACKEND", "columns", "with_own"]


def with_own(text: str) -> str:
    """Returns the settings with expandable segments: of one key the last value counts."""
    return f"{text},expandable_segments:True" if text.strip(", ") else "expandable_segments:True"
