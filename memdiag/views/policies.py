"""Curves of the same run under other settings, for an overlay on a page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from memdiag.views.columns import pack
from memdiag.views.timeline import of_curve

if TYPE_CHECKING:
    from memdiag.allocator.simulated_run import SimulatedRun

MOST_POINTS = 4000


def simulated_curves(runs: Iterable[SimulatedRun]) -> tuple[dict[str, Any], ...]:
    """Returns a curve for each simulated run: see ``curve``."""
    return tuple(map(curve, runs))


def curve(run: SimulatedRun) -> dict[str, Any]:
    """Returns one curve for a page.

    Keys are label, policy, conf, device, peak_reserved, num_ooms, is_recorded, and the columns in ``event``.
    """
    at = of_curve(run.reserved, run.allocated, MOST_POINTS)
    return {
        "label": run.label,
        "policy": run.policy,
        "conf": run.conf,
        "device": run.device,
        "peak_reserved": run.peak_bytes,
        "num_ooms": run.num_ooms,
        "is_recorded": run.is_recorded,
        "event": pack({"event": run.event[at], "reserved": run.reserved[at], "allocated": run.allocated[at]}),
    }
