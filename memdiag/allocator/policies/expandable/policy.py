"""PyTorch's CUDA caching allocator with expandable segments, in addition to the other settings."""

from __future__ import annotations

from memdiag.allocator.policies.caching.policy import CachingPolicy


def with_expandable_segments(conf: str) -> str:
    """Returns settings with expandable segments appended, because the last value of a key applies."""
    return f"{conf},expandable_segments:True" if conf.strip(", ") else "expandable_segments:True"


class ExpandablePolicy(CachingPolicy):
    """CUDACachingAllocator.cpp with ``expandable_segments:True``."""

    def effective_conf(self, conf: str) -> str:
        """Returns the settings with expandable segments."""
        return with_expandable_segments(conf)


EXPANDABLE = ExpandablePolicy()
