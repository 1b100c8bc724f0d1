"""Which texts to look for: the anchors of every dialect, here so that no dialect is imported for a text that has none of its own.

A test compares them with the dialects; ``python tests/oom/write_anchors.py`` writes this file anew.
"""

from __future__ import annotations

# A message in the middle of a long text is found by one of these, not too far from one of its anchors. Each costs about as much as the
# rest of the search together, however rare it is.
WORDS = ("memory", "alloc", "kill", "exitcode", "exit code", "algorithm to run", "invalid buffer", "\u6740\u6b7b", "\u6bba\u6b7b")

# Counts as an anchor around these words: what is left of those with codes and signals without their digits, which say too little.
CLUES = ("failedtoallocate", "memory_allocation_failure", "insufficient_device_memory", "insufficientmemory")

ANCHORS: dict[str, tuple[str, ...]] = {}
