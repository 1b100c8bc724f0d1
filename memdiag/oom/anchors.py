"""Which texts to look for: the anchors of every dialect, here so that no dialect is imported for a text that has none of its own.

A test compares them with the dialects; ``python tests/oom/write_anchors.py`` writes this file anew.
"""

from __future__ import annotations

# Each anchor of a dialect has one of these inside, or is searched for by itself. The longer a word is, the faster it is found, and
# the rarer it is in ordinary logs, the less often its surroundings are looked at.
WORDS = ("outofmemory", "alloc", "killed", "memory")

ANCHORS: dict[str, tuple[str, ...]] = {}
