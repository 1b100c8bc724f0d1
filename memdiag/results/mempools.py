"""The result of a program's own memory pools in a simulated run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolAtPeak:
    """Pools of one name at the peak of reserved bytes.

    Attributes:
        pool: Their name.
        reserved_bytes, requested_bytes: Held, and asked for by what is in them.
        num_scopes: How many scopes send requests there.
        num_pools: How many they are.
    """

    pool: str
    reserved_bytes: int
    requested_bytes: int
    num_scopes: int
    num_pools: int = 1


@dataclass(frozen=True, slots=True)
class Mempools:
    """How it went.

    Attributes:
        bases: What the scopes rest on, for each of "weights", "optimizer" and "layers"; "none": there is no such scope.
        num_requests: Over the whole replay.
        pools: The default pool (with others that the recording had), then those of the scopes.
    """

    bases: Mapping[str, str]
    num_requests: int
    pools: tuple[PoolAtPeak, ...]
