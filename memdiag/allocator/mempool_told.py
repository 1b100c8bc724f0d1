"""What is told of a program's own pools: plain data for renderers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolAtPeak:
    """One pool at the peak of reserved bytes: bytes held, bytes asked for by what is in it, and how many scopes send requests to it."""

    pool: str
    reserved_bytes: int
    requested_bytes: int
    num_scopes: int


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
