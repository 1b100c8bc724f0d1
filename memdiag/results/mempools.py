"""Result of simulating a program with its own memory pools (``torch.cuda.MemPool``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolAtPeak:
    """Pools of one name at the reserved peak.

    Attributes:
        pool: Their name.
        reserved_bytes, requested_bytes: Bytes reserved by the pools, and bytes requested by their live tensors.
        num_scopes: Number of scopes whose requests go there.
        num_pools: Number of pools.
    """

    pool: str
    reserved_bytes: int
    requested_bytes: int
    num_scopes: int
    num_pools: int = 1


@dataclass(frozen=True, slots=True)
class Mempools:
    """Outcome of a program's own memory pools.

    Attributes:
        bases: Basis of the scopes for each of "weights", "optimizer" and "layers"; "none" if there is no such scope.
        num_requests: Number of requests over the whole replay.
        pools: The default pool (with other pools of the recording), then those of the scopes.
    """

    bases: Mapping[str, str]
    num_requests: int
    pools: tuple[PoolAtPeak, ...]
