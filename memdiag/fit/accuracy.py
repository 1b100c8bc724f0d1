"""How far simulated devices were from real cards, and the safety margin that follows.

``reports/phantom-truth.md`` is the source.
"""

from __future__ import annotations

WORST_LOW_PERCENT = 3.9  # of the published figures, the one that the simulation was furthest below
MARGIN = 0.05  # of the reserved peak: above the worst error
