"""The call sites that hold the most device memory now, from the stacks of live blocks.

A snapshot of many blocks takes a while and holds the interpreter lock, so the next one waits until the snapshots have
taken at most 0.5 % of the time.
"""

from __future__ import annotations

import inspect
import time
from typing import Any

_MOST_COST = 0.005  # fraction of the time
_MOST_SITES = 12
_MOST_FRAMES = 40


class Sites:
    """The largest call sites, updated as often as that is cheap."""

    def __init__(self) -> None:
        self._next = 0.0
        self._found: list[dict[str, Any]] = []

    def read(self, backends: list[Any]) -> list[dict[str, Any]]:
        """Returns the largest sites: their bytes, number of blocks, device, and stack from the innermost frame."""
        began = time.perf_counter()
        if began < self._next:
            return self._found
        self._found = largest([(backend.name, segment) for backend in backends for segment in _segments(backend)])
        took = time.perf_counter() - began
        self._next = began + took / _MOST_COST
        return self._found


def largest(segments: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Returns the sites with the most bytes in live blocks, of segments and the names of their backends.

    Blocks without a stack are one site with an empty stack: they are older than the history, or of autograd's thread.
    """
    sums: dict[Any, list[int]] = {}
    for name, segment in segments:
        for block in segment["blocks"]:
            if block["state"] != "active_allocated":
                continue
            frames = block.get("frames") or ()
            key = (name, segment["device"], *[(each["filename"], each["line"], each["name"]) for each in frames])
            sums.setdefault(key, [0, 0])
            sums[key][0] += block["size"]
            sums[key][1] += 1
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])[:_MOST_SITES]
    return [
        {
            "backend": key[0],
            "index": key[1],
            "bytes": size,
            "num_blocks": count,
            "stack": [list(frame) for frame in key[2 : 2 + _MOST_FRAMES]],
        }
        for key, (size, count) in ordered
    ]


def _segments(backend: Any) -> list[dict[str, Any]]:
    """Returns the segments of a snapshot, without the history where this version of PyTorch can leave it out."""
    snapshot = getattr(getattr(backend, "_memory", None), "memory_snapshot", None)
    if snapshot is not None and "include_traces" in inspect.signature(snapshot).parameters:
        return list(snapshot(include_traces=False))
    content = backend.snapshot() or {}
    return list(content.get("segments") or ())
