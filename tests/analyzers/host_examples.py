"""The example findings in docs/findings/MD151.md to MD154.md."""

from __future__ import annotations

from memdiag.analyzers import growing_workers, host_limit, pinned_rounding, saving_peaks
from tests.analyzers.test_host_findings import found, near, sampled, saves, workers

_CACHE = {"pinned": 34_816, "pinned_used": 33_792, "pinned_tensors": 20_890, "pinned_blocks": 32_768}  # MiB
_LIMIT = {"cgroup_limit": 98_304}

EXAMPLES = {
    "MD151": lambda: found(pinned_rounding, sampled([_CACHE])),
    "MD152": lambda: found(growing_workers, workers(range(1000, 3000, 100), cgroup_used=60_000, **_LIMIT)),
    "MD153": lambda: found(saving_peaks, saves(before=9000, copies=7000, after=9500, **_LIMIT)),
    "MD154": lambda: found(host_limit, near(15_900)),
}
