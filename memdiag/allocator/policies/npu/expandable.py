"""torch_npu's caching allocator with expandable segments, whatever else is set."""

from __future__ import annotations

from memdiag.allocator.policies.expandable.policy import with_own
from memdiag.allocator.policies.npu.policy import BACKEND, columns

__all__ = ["BACKEND", "columns", "with_own"]
