"""The result of a replay: the place of every tensor, the memory held after every call, and the driver calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from memdiag.allocator.scenario import Beginning, Scenario
from memdiag.allocator.workload import Workload
from memdiag.trace.table import Array

# Status of a call. UNDEFINED: the real allocator fails an assertion here or continues with freed memory; every later
# call is undefined too.
STATUSES: tuple[str, ...] = ("ok", "oom", "skipped", "undefined")
OK, OUT_OF_MEMORY, SKIPPED, UNDEFINED = range(4)


@dataclass(frozen=True)
class Replay:
    """One replay. Each column has one value per call of the workload, taken after the call; bytes are int64.

    Attributes:
        policy, conf, torch_version: The policy, settings and version that were replayed.
        capacity_bytes, limit_bytes: Size of the device; limit of the process. None: unlimited.
        status: Index into ``STATUSES`` (int8).
        seg: Number of the driver range that contains a new block (ranges at the start first, by address); -1: none
            (int32).
        off: Offset of the block in that range; -1: none.
        block: Size of the block; -1: none.
        reserved, allocated, active, requested: Bytes.
        retries, ooms, device_allocs, device_frees: Counted from the first call on (int32).
        bases: Address of each range: the recorded one for ranges at the start, otherwise invented and increasing.
        log: The entries that the allocator would have traced, in order: columns action (``trace.schema.ACTIONS``),
            call, seg, off, size, stream (index), pool (index), tensor (-1: none). None if only the curves were
            requested.
        pools: Ids of the pools of the log if the policy has its own pools; None: the pools of the workload.
    """

    policy: str
    conf: str
    torch_version: str
    capacity_bytes: int | None
    limit_bytes: int | None
    status: Array
    seg: Array
    off: Array
    block: Array
    reserved: Array
    allocated: Array
    active: Array
    requested: Array
    retries: Array
    ooms: Array
    device_allocs: Array
    device_frees: Array
    bases: Array
    log: dict[str, Array] | None = None
    pools: tuple[tuple[int, int], ...] | None = None

    @classmethod
    def from_columns(cls, scenario: Scenario, columns: Mapping[str, Any], **more: Any) -> Self:
        """Returns the replay of a scenario.

        Args:
            scenario: The replayed scenario.
            columns: The attributes from a run of the model (``Model.columns``).
            more: Additional attributes of a policy.
        """
        return cls(
            policy=scenario.policy,
            conf=scenario.conf,
            torch_version=scenario.torch_version,
            capacity_bytes=scenario.capacity_bytes,
            **columns,
            **more,
        )


class Replayer(Protocol):
    """A function that replays a workload, as ``memdiag.allocator.replay.serve`` does."""

    def __call__(
        self, workload: Workload, scenario: Scenario, beginning: Beginning = ..., *, log: bool = ...
    ) -> Replay:
        """Returns the replay."""
