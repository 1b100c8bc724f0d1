"""Host memory of the processes below the program that keeps growing: DataLoader workers, most often.

A worker that touches Python objects of the dataset copies their pages, because it changes their reference counts. A
cache or a list in the dataset grows in each worker. The samples of a recording show the sum over all workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.analyzers.support.context import Context
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.table import Array
from memdiag.units import GIB, MIB, format_bytes

CODES: dict[str, str] = {"MD152": "worker processes whose host memory grows"}

LEAST_SAMPLES = 12
WARM_UP = 0.25  # fraction of the samples, in which workers start and fill their first batches
PARTS = 3  # of the rest: each must be higher than the one before
LATE = 0.4  # required rise from the second part to the third, relative to the one before
FLOOR = 64 * MIB
SHARE = 0.1  # fraction of the workers' memory
WARNING_FLOOR = 4 * GIB
SOON = 24  # hours until the limit of the cgroup
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Growth:
    """Memory of the workers over the samples at which their number was the same.

    Attributes:
        count: Number of workers.
        first, last: Sum of their resident bytes after the warm-up and at the end.
        seconds: Time between the two.
        steps: Training steps between the two.
    """

    count: int
    first: int
    last: int
    seconds: float
    steps: int

    @property
    def bytes(self) -> int:
        """How much they grew."""
        return self.last - self.first

    @property
    def hourly(self) -> float:
        """Growth in one hour at this rate."""
        return self.bytes / self.seconds * SECONDS_PER_HOUR if self.seconds > 0 else 0.0


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:  # noqa: ARG001 - as of every analyzer
    """Yields finding MD152."""
    growth = _growth(trace)
    if growth is None or growth.bytes < max(FLOOR, SHARE * growth.first):
        return
    left = _left(trace)
    is_much = growth.bytes >= WARNING_FLOOR or (left is not None and left < SOON * growth.hourly)
    yield Finding(
        "MD152",
        phrase("host.workers.title", count=growth.count, bytes=format_bytes(growth.bytes)),
        "warning" if is_much else "info",
        None,
        tuple(_evidence(growth, left)),
        tuple(_fixes()),
        weight_bytes=growth.bytes,
    )


def _growth(trace: Trace) -> Growth | None:
    """Returns the growth of the workers, or None if their memory does not keep rising."""
    samples = trace.host_samples
    known = np.flatnonzero((samples.children_rss > 0) & (samples.num_children > 0))
    if not len(known):
        return None
    counts, times = np.unique(samples.num_children[known], return_counts=True)
    count = int(counts[np.argmax(times)])
    rows = known[samples.num_children[known] == count]
    rows = rows[int(WARM_UP * len(rows)) :]
    if len(rows) < LEAST_SAMPLES * (1 - WARM_UP):
        return None
    parts = [float(np.median(samples.children_rss[part])) for part in np.array_split(rows, PARTS)]
    early, late = parts[1] - parts[0], parts[2] - parts[1]
    if early <= 0 or late < LATE * early or not _stays(samples.children_rss[rows]):
        return None
    first, last = int(rows[0]), int(rows[-1])
    return Growth(
        count,
        int(samples.children_rss[first]),
        int(samples.children_rss[last]),
        float(samples.time_us[last] - samples.time_us[first]) / 1e6,
        int(samples.step[last] - samples.step[first]),
    )


def _stays(curve: Array) -> bool:
    """Returns whether the memory ends near its peak: workers of a new epoch begin small."""
    return bool(curve[-1] - curve[0] >= 0.9 * (curve.max() - curve[0]))


def _left(trace: Trace) -> int | None:
    """Returns the memory left below the limit of the cgroup at the last sample, or None without a limit."""
    samples = trace.host_samples
    rows = np.flatnonzero((samples.cgroup_limit > 0) & (samples.cgroup_used >= 0))
    return max(int(samples.cgroup_limit[rows[-1]] - samples.cgroup_used[rows[-1]]), 0) if len(rows) else None


def _evidence(growth: Growth, left: int | None) -> Iterator[Evidence]:
    yield Evidence(phrase("host.workers.first"), growth.first, "bytes")
    yield Evidence(phrase("host.workers.last"), growth.last, "bytes")
    yield Evidence(phrase("host.workers.each"), growth.bytes // growth.count, "bytes")
    if growth.steps > 0:
        yield Evidence(phrase("host.workers.step"), growth.bytes // growth.steps, "bytes/step")
    if growth.hourly:
        yield Evidence(phrase("host.workers.hour"), round(growth.hourly), "bytes")
    if left is not None:
        yield Evidence(phrase("host.workers.left"), left, "bytes")
        if growth.hourly:
            yield Evidence(phrase("host.workers.until"), round(left / growth.hourly, 1))


def _fixes() -> Iterator[Fix]:
    for name in ("objects", "cache", "restart"):
        yield Fix(
            phrase(f"host.workers.fix.{name}"),
            "code",
            "",
            phrase(f"host.workers.fix.{name}.when"),
            phrase(f"host.workers.fix.{name}.caveat"),
        )
