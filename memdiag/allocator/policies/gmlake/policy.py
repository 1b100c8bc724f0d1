"""GMLake: free blocks that are too small one by one are mapped side by side and serve a large request together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memdiag.allocator.policies.gmlake.blocks import CHUNK
from memdiag.allocator.policies.gmlake.replay import StitchReplay, replay_stitch, rounded_sizes
from memdiag.allocator.policies.gmlake.settings import NAMES, ON_NPU, Settings
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.allocator.versions.variables import settings_of
from memdiag.allocator.workload import Workload
from memdiag.sizes.cuda import LARGE_SEGMENT
from memdiag.trace.layout import allocation_sizes
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array

BACKEND = "cuda"  # whose settings it reads: it is a patched allocator of PyTorch's
LARGE_GRAIN = CHUNK
VARIABLES = NAMES


def with_own(text: str) -> str:
    """Returns the settings without the variables among them."""
    return settings_of(text)


def adopted(keys: Mapping[str, str]) -> dict[str, str]:
    """Returns which of the settings of a recording go with this policy."""
    limit = keys.get("max_split_size_mb", "")
    return {"max_split_size_mb": limit} if limit.isdigit() and int(limit) > LARGE_SEGMENT >> 20 else {}


def columns(sizes: Array, conf: Conf, rules: Rules) -> tuple[Array, Array]:  # noqa: ARG001 - all policies are called alike
    """Returns, for requests of ``sizes`` bytes (int64): bytes of the block, and of the segment where new memory is needed (int64)."""
    rounded = rounded_sizes(sizes)
    return rounded, allocation_sizes(rounded)


def marks(trace: Trace, device: DeviceTrace, workload: Workload) -> Settings:  # noqa: ARG001 - all policies are called alike
    """Returns what it is set to where nothing is set: GMLake's defaults, on NPUs those of its port in MindSpeed's SmartSwap."""
    return ON_NPU if trace.backend == "npu" else Settings()


def replay(workload: Workload, default: Settings, *, conf: str = "", **how: Any) -> StitchReplay:
    """Replays a workload.

    Raises:
        MemdiagError: Settings or variables that mean nothing here.
    """
    return replay_stitch(workload, Settings.parse(conf, default), conf=conf, **how)
