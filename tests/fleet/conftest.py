"""Handwritten facts of ranks, in the form that ``memdiag.fleet.facts`` returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

MB = 1 << 20


@pytest.fixture
def facts_of() -> Callable[..., dict[str, Any]]:
    def make(parts: dict[tuple[str, str], tuple[int, int]], *, unused: int = 0, **other: Any) -> dict[str, Any]:
        """Returns facts; ``parts``: megabytes and tensors by kind and part; ``unused``: other reserved megabytes."""
        active = sum(size for size, _ in parts.values()) * MB
        parameters = {
            part: [size * MB, number] for (kind, part), (size, number) in parts.items() if kind == "parameter"
        }
        return {
            "rank": None,
            "world": None,
            "backend": "cuda",
            "torch_version": "2.13.0",
            "phantom": False,
            "num_events": 1000,
            "headline": "",
            "conf": None,
            "findings": [],
            "device": 0,
            "capacity_bytes": 64 << 30,
            "peak_reserved_bytes": active + unused * MB,
            "peak_allocated_bytes": active,
            "peak_step": 1,
            "peak_phase": "forward",
            "fullest_active_bytes": active,
            "num_retries": 0,
            "failed": None,
            "by_category": {},
            "parts": [[*key, size * MB, number] for key, (size, number) in parts.items()],
            "places": [
                [f"train.py:{len(part)} forward", size * MB, number] for (_, part), (size, number) in parts.items()
            ],
            "parameters": parameters,
            "largest_input_bytes": None,
            "step_width": 1,
            "steps": [[0, active, active], [1, active + unused * MB, active]],
            "curve": [active] * 4,
            **other,
        }

    return make
