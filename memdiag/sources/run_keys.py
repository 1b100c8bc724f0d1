"""The keys of memdiag's own part of a recording, to name those that this version does not understand.

A newer recorder may write more. Keys of other dicts than those here are data: names, numbers of devices, addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memdiag.sources.run_samples import HOST_KEYS, rows_in

_MOST_SAMPLES = 1 << 14
_RECORDING = frozenset(
    {
        "argv",
        "backend",
        "calls",
        "capacity_bytes",
        "cards",
        "counters",
        "counts",
        "error",
        "error_is_of_code",
        "format",
        "forwards",
        "fraction",
        "has_times",
        "holders",
        "local_rank",
        "lost_seconds",
        "marks",
        "max_events",
        "memdiag_version",
        "memory",
        "modules",
        "names",
        "ooms",
        "optimizers",
        "outer_stacks",
        "paused_seconds",
        "phantom",
        "phantom_device",
        "pid",
        "rank",
        "reason",
        "samples",
        "settings",
        "simulated",
        "stacks_of_earlier_passes",
        "steps",
        "taken_over",
        "tensors",
        "torch_version",
        "unknown_frees",
        "unseen_frees",
        "window",
        "world",
    }
)
_SAMPLE = frozenset({"t_us", "when", "step", "waits"})
_ROWS = {
    "card": frozenset({"device", "total_bytes", "free_bytes", "reserved_bytes", "allocs", "frees"}),
    "processes": frozenset({"device", "bytes"}),
    "counters": frozenset(
        {"device", "reserved_bytes", "allocated_bytes", "reserved_peak_bytes", "allocated_peak_bytes"}
    ),
}


def unknown_keys(own: Mapping[str, Any]) -> set[str]:
    """Returns the keys of a recording, of its samples and of their sections that memdiag does not know."""
    return {key for key in _keys(own) if isinstance(key, str)}


def _keys(own: Mapping[str, Any]) -> Iterator[Any]:
    yield from own.keys() - _RECORDING
    samples = own.get("samples")
    for sample in samples[:_MOST_SAMPLES] if isinstance(samples, list) else ():
        if not isinstance(sample, dict):
            continue
        yield from sample.keys() - _SAMPLE - _ROWS.keys() - {"host"}
        host = sample.get("host")
        yield from host.keys() - HOST_KEYS if isinstance(host, dict) else ()
        for section, known in _ROWS.items():
            for row in rows_in(sample.get(section)):
                yield from row.keys() - known
