"""What a replay gives: where every tensor came to lie, what was held after every call, and what the driver was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from memdiag.allocator.scenario import Scenario
from memdiag.trace.table import Array

# Of every call. UNDEFINED: the real allocator stops at an assertion of its own here, or goes on with freed memory; so
# does all after it.
STATUSES: tuple[str, ...] = ("ok", "oom", "skipped", "undefined")
OK, OUT_OF_MEMORY, SKIPPED, UNDEFINED = range(4)


@dataclass(frozen=True)
class Replay:
    """One replay. Columns have one value a call of the workload, as it stands after the call; bytes are int64.

    Attributes:
        policy, conf, torch_version: What was replayed.
        capacity_bytes, limit_bytes: Of the device; what the process may hold of it. None: unlimited.
        status: Index into ``STATUSES`` (int8).
        seg: Number of the range from the driver that a new block lies in (ranges at the start first, by address); -1:
            none (int32).
        off: Bytes from the beginning of that range; -1: none.
        block: Bytes of the block; -1: none.
        reserved, allocated, active, requested: Bytes.
        retries, ooms, device_allocs, device_frees: Counted from the first call on (int32).
        bases: Address of each range: as recorded for those at the start, else invented, going up.
        log: The allocator's own entries in order, as it would have traced them: columns action (``trace.schema.ACTIONS``), call, seg,
            off, size, stream (index), pool (index), tensor (-1: none). None where only the curves were asked for.
        pools: Ids of the pools of the log, where the policy has pools of its own; None: those of the workload.
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
            scenario: What was replayed.
            columns: All attributes that a run of the model gives (``Model.columns``).
            more: Attributes of a policy's own.
        """
        return cls(
            policy=scenario.policy,
            conf=scenario.conf,
            torch_version=scenario.torch_version,
            capacity_bytes=scenario.capacity_bytes,
            **columns,
            **more,
        )
