"""A cgroup whose memory limit is near: the kernel ends a process of it with SIGKILL, and nothing explains why.

The use is without file pages that the kernel can drop, as Kubernetes counts it. Shared memory files count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.support.context import Context
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.table import Table
from memdiag.units import format_bytes

CODES: dict[str, str] = {"MD154": "host memory near the limit of the cgroup"}

SHARE = 0.85  # fraction of the limit
WARNING_SHARE = 0.95
_PARTS = ("rss", "children_rss", "shm_used", "pinned")  # columns that explain the use; they overlap


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:  # noqa: ARG001 - as of every analyzer
    """Yields finding MD154."""
    samples = trace.host_samples
    rows = np.flatnonzero((samples.cgroup_limit > 0) & (samples.cgroup_used >= 0))
    if not len(rows):
        return
    row = int(rows[np.argmax(samples.cgroup_used[rows] / samples.cgroup_limit[rows])])
    used, limit = int(samples.cgroup_used[row]), int(samples.cgroup_limit[row])
    if used < SHARE * limit:
        return
    yield Finding(
        "MD154",
        phrase("host.limit.title", used=format_bytes(used), limit=format_bytes(limit)),
        "warning" if used >= WARNING_SHARE * limit else "info",
        None,
        tuple(_evidence(samples, row)),
        tuple(_fixes(samples, row)),
        weight_bytes=used,
    )


def _evidence(samples: Table, row: int) -> Iterator[Evidence]:
    used, limit = int(samples.cgroup_used[row]), int(samples.cgroup_limit[row])
    yield Evidence(phrase("host.limit.used"), used, "bytes", phrase("host.limit.step", step=int(samples.step[row])))
    yield Evidence(phrase("host.limit.left"), limit - used, "bytes")
    for name in _PARTS:
        if (size := int(samples[name][row])) > 0:
            words = {"count": int(samples.num_children[row])} if name == "children_rss" else {}
            yield Evidence(phrase(f"host.limit.{name}", **words), size, "bytes")


def _fixes(samples: Table, row: int) -> Iterator[Fix]:
    """Yields the remedy for the largest part first, the higher limit last."""
    sizes = {name: int(samples[name][row]) for name in _PARTS}
    largest = max(sizes, key=lambda name: sizes[name])
    for name in dict.fromkeys((largest, "children_rss", "raise")):
        if name == "raise" or sizes[name] > 0:
            yield Fix(
                phrase(f"host.limit.fix.{name}"),
                "flag" if name == "raise" else "code",
                phrase("host.limit.fix.raise.change") if name == "raise" else "",
                phrase("remedies.every"),
                phrase(f"host.limit.fix.{name}.caveat"),
            )
