"""MindSpeed's memory fragmentation feature: long-lived and short-lived tensors in pools of their own, hooks around every layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memdiag.allocator.policies.lifecycle.hooks import marks_of
from memdiag.allocator.policies.lifecycle.marks import Marks
from memdiag.allocator.policies.lifecycle.replay import LifecycleReplay, replay_lifecycle
from memdiag.allocator.versions import variables
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.allocator.workload import Workload
from memdiag.settings.parsers import smallest_split
from memdiag.trace.layout import Layout, allocation_sizes
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array

BACKEND = "mindspeed"
VARIABLES = ("ALR_MAX",)  # what it reads beside the settings


def with_own(text: str) -> str:
    """Returns the settings without the variable among them."""
    return variables.settings_of(text)


def adopted(keys: Mapping[str, str]) -> dict[str, str]:
    """Returns which of the settings of a recording go with this policy: it excludes expandable segments, and takes no smaller limits."""
    limit = keys.get("max_split_size_mb", "")
    fits = limit.isdigit() and int(limit) >= smallest_split(BACKEND, (2, 1))
    return {"max_split_size_mb": limit} if fits else {}


def columns(sizes: Array, conf: Conf, rules: Rules) -> tuple[Array, Array]:  # noqa: ARG001 - all policies are called alike
    """Returns, for requests of ``sizes`` bytes (int64): bytes of the block, and of a segment of the short-lived (int64)."""
    rounded = Layout().round(sizes)
    return rounded, allocation_sizes(rounded)


def marks(trace: Trace, device: DeviceTrace, workload: Workload) -> Marks:
    """Returns when the hooks would run."""
    return marks_of(trace, device, workload, "layer")


def replay(
    workload: Workload, hooked: Marks, *, policy: str = "lifecycle", conf: str = "", **how: Any
) -> LifecycleReplay:
    """Replays a workload whose hooks run at ``hooked``; ``ALR_MAX=BYTES`` among the settings is the variable of that name.

    Raises:
        MemdiagError: There is no such setting, or another variable is among them.
    """
    given, settings = variables.split(conf)
    variables.known(given, VARIABLES, "MindSpeed's allocator")
    most = variables.number("ALR_MAX", given["ALR_MAX"], 1) if given else None
    found = replay_lifecycle(workload, hooked, policy=policy, conf=settings, alr_max_bytes=most, **how)
    return replace(found, conf=conf)
