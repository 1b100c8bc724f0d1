"""The Pareto front of the runs: work done at a time and cost of recomputation, against the size of the device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memdiag.fit.expressions import number
from memdiag.fit.grid import BATCHES, LENGTHS, SHRINKING, STAGES
from memdiag.results.fit import FrontPoint, GridAxis

# Placeholders with these names are numbers of ranks that share the same data.
_CONTEXT = frozenset({"cp", "cp_size", "context_parallel", "context_parallel_size"})
SHARING = SHRINKING | STAGES | _CONTEXT
RECOMPUTATION = frozenset(
    {
        "ac",
        "activation_checkpointing",
        "checkpointing",
        "ckpt",
        "gradient_checkpointing",
        "recompute",
        "recompute_granularity",
        "remat",
    }
)
# Forward passes that a value of such an axis adds; a part of one counts as half.
_PASSES = {
    **dict.fromkeys(("none", "off", "false", "no", "0"), 0.0),
    **dict.fromkeys(("selective", "op", "partial", "attention"), 0.5),
    **dict.fromkeys(("full", "on", "true", "yes", "1", "all", "block"), 1.0),
}


@dataclass(frozen=True)
class FrontRun:
    """A run that may be on the front.

    Attributes:
        device: The first given device of the kind that it ran on.
        values: Value of each placeholder.
        smallest_total_bytes: Memory of the smallest device of this kind on which it runs.
        world: Number of ranks, or None.
    """

    device: str
    values: tuple[str, ...]
    smallest_total_bytes: int
    world: int | None


def front_of(axes: Sequence[GridAxis], runs: Sequence[FrontRun]) -> tuple[FrontPoint, ...]:
    """Returns the runs that no other run of the same device dominates, by backend, the smallest device first."""
    points = [(_point(axes, run), _goals(axes, run)) for run in runs]
    kept = [
        point
        for point, goals in points
        if not any(
            other.device == point.device and its != goals and all(a <= b for a, b in zip(its, goals, strict=True))
            for other, its in points
        )
    ]
    # two devices of one backend often need the same: one row says so
    rows: dict[tuple[object, ...], FrontPoint] = {}
    for point in kept:
        rows.setdefault((_backend(point.device), point.values, point.smallest_total_bytes), point)
    backends = list(dict.fromkeys(_backend(run.device) for run in runs))
    return tuple(
        sorted(rows.values(), key=lambda point: (backends.index(_backend(point.device)), point.smallest_total_bytes))
    )


def _backend(device: str) -> str:
    return device.partition(":")[0]


def _point(axes: Sequence[GridAxis], run: FrontRun) -> FrontPoint:
    values = {axis.name.lower(): value for axis, value in zip(axes, run.values, strict=True)}
    return FrontPoint(
        run.device, run.values, run.smallest_total_bytes, run.world, _at_once(values, run.world), _passes(values)
    )


def _goals(axes: Sequence[GridAxis], run: FrontRun) -> tuple[float, ...]:
    """Returns the values by which runs are compared: smaller is better."""
    point = _point(axes, run)
    growing = [
        -float(number(value))
        for axis, value in zip(axes, run.values, strict=True)
        if axis.is_growing and axis.name.lower() not in BATCHES | LENGTHS
    ]
    return (run.smallest_total_bytes, run.world or 1, -(point.at_once or 0), point.extra_forward_passes or 0, *growing)


def _at_once(values: Mapping[str, str], world: int | None) -> int | None:
    sizes = [int(value) for name, value in values.items() if name in BATCHES | LENGTHS and value.isdigit()]
    if not sizes:
        return None
    sharing = math.prod(int(value) for name, value in values.items() if name in SHARING and value.isdigit())
    return math.prod(sizes) * max((world or 1) // max(sharing, 1), 1)


def _passes(values: Mapping[str, str]) -> float | None:
    return next((_PASSES.get(value.lower()) for name, value in values.items() if name in RECOMPUTATION), None)
