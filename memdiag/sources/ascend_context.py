"""Reads the files next to Ascend profiler files that describe the run: versions, settings and clock."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memdiag.units import MIB

_SETTINGS = ("PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


@dataclass(frozen=True)
class ProfilerFacts:
    """Facts about a profiler run.

    Attributes:
        version: torch_npu's version, or None if unknown.
        settings: Allocator settings from the environment; empty text if a variable is not set.
        clock_offset: Nanoseconds between the profiler's counter at its start and 1970, or None if unknown.
        start_count: The counter at its start.
        tick: Nanoseconds per tick of the counter.
    """

    version: str | None = None
    settings: dict[str, object] = field(default_factory=dict)
    clock_offset: int | None = None
    start_count: int = 0
    tick: float = 1.0


def context_of(path: Path) -> ProfilerFacts:
    """Returns the facts in profiler_info and profiler_metadata, one or two folders above a profiler's file.

    Facts of missing files are unknown.
    """
    info = _find(path, "profiler_info*.json")
    start, end = _dict(info.get("start_info")), _dict(info.get("end_info"))
    version = info.get("torch_npu_version")
    offset: int | None = None
    start_count, tick = 0, 1.0
    try:
        offset = int(end["collectionTimeEnd"]) - int(end["MonotonicTimeEnd"])
        if start["syscnt_enable"]:  # a processor counter, at freq MHz
            start_count, tick = int(start["start_cnt"]), 1000 / float(start["freq"])
            offset += int(start["start_monotonic"])
    except (KeyError, TypeError, ValueError, ArithmeticError):
        offset = None
    return ProfilerFacts(
        version if isinstance(version, str) else None,
        settings_in(_find(path, "profiler_metadata.json").get("ENV_VARIABLES")),
        offset,
        start_count,
        tick,
    )


def settings_in(environment: Any) -> dict[str, object]:
    """Returns the allocator settings among environment variables (a dict, or JSON of one)."""
    if isinstance(environment, str):
        try:
            environment = json.loads(environment[:MIB])
        except (ValueError, RecursionError):
            return {}
    return {name: str(value) for name, value in _dict(environment).items() if name in _SETTINGS}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _find(path: Path, pattern: str) -> dict[str, Any]:
    for folder in (path.parent, path.parent.parent):
        for file in sorted(folder.glob(pattern))[:1]:
            try:
                if file.is_file() and file.stat().st_size <= MIB:
                    return _dict(json.loads(file.read_text(encoding="utf-8")))
            except (OSError, ValueError, RecursionError):
                continue  # optional information
    return {}
