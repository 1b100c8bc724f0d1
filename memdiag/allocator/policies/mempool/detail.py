"""Result of simulating a program with its own memory pools (``torch.cuda.MemPool``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from memdiag.allocator.policies.evidence import known_from
from memdiag.results.detail import Cell, DetailRow, gap, paragraph, table
from memdiag.text import phrase
from memdiag.units import format_bytes, format_count

_SCOPED = ("weights", "optimizer", "layers")


@dataclass(frozen=True, slots=True)
class PoolAtPeak:
    """Pools of one name at the reserved peak.

    Attributes:
        name: Name of the pools.
        reserved_bytes: Bytes reserved by the pools.
        requested_bytes: Bytes requested by their live tensors.
        num_scopes: Number of scopes whose requests use these pools.
        num_pools: Number of pools.
    """

    name: str
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

    key: ClassVar[str] = "mempools"

    bases: Mapping[str, str]
    num_requests: int
    pools: tuple[PoolAtPeak, ...]

    def rows(self, run: str) -> Iterator[DetailRow]:
        """Yields the bytes in each pool, and the evidence for its scopes."""
        yield gap()
        heads = (phrase(f"policies.head.{head}") for head in ("scopes", "reserved", "requested"))
        rows: list[Sequence[Cell]] = [[(phrase("policies.pools", name=run), "bold"), *heads]]
        for pool in self.pools:
            scopes = format_count(pool.num_scopes) if pool.name in _SCOPED else ""
            rows.append([pool.name, scopes, *map(format_bytes, (pool.reserved_bytes, pool.requested_bytes))])
        yield from table("lrrr", rows)
        yield paragraph(phrase("policies.scopes", known=known_from(self.bases)), "dim", indent=2)
