"""The result of lifetime-segregated pools in a simulated run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from memdiag.allocator.policies.evidence import known_from
from memdiag.results.detail import Cell, DetailRow, gap, paragraph, table
from memdiag.text import Phrase, joined, phrase
from memdiag.units import format_bytes, format_count


@dataclass(frozen=True, slots=True)
class PoolState:
    """One pool at one moment: name, segments, bytes reserved, bytes allocated, and bytes that outlive their window."""

    pool: str
    num_segments: int
    reserved_bytes: int
    used_bytes: int
    surviving_bytes: int


@dataclass(frozen=True, slots=True)
class Misfiled:
    """Tensors that were allocated in the wrong pool.

    Attributes:
        num, num_bytes: Tensors and bytes of their blocks, over the whole replay.
        peak_bytes: Bytes of those that were live at the reserved peak.
        cost_bytes: Their cost at that peak. For false long-lived tensors: idle bytes of segments that were reserved for
            them. For false short-lived tensors: free bytes in short-lived segments that a surviving tensor retains.
    """

    num: int
    num_bytes: int
    peak_bytes: int
    cost_bytes: int


@dataclass(frozen=True, slots=True)
class LifetimePools:
    """Outcome of lifetime-segregated pools.

    Attributes:
        hooks: Unit that counted as a forward call: "layer" or "stack".
        bases: Basis of the marks for each of "setup", "forward", "step" and "optimizer".
        num_bytes: Bytes of all allocated blocks.
        thought_long_bytes: Bytes of tensors classified as long-lived.
        thought_long_wrongly: Classified as long-lived, but freed within the window in which they were allocated.
        thought_short_wrongly: Classified as short-lived within a window, but still live when it ended.
        pools: The four pools at the reserved peak.
    """

    key: ClassVar[str] = "lifetimes"

    hooks: str
    bases: Mapping[str, str]
    num_bytes: int
    thought_long_bytes: int
    thought_long_wrongly: Misfiled
    thought_short_wrongly: Misfiled
    pools: tuple[PoolState, ...]

    def rows(self, run: str) -> Iterator[DetailRow]:
        """Yields the pools, misfiled tensors, and what is known of the program."""
        yield gap()
        heads = (phrase(f"policies.head.{head}") for head in ("segments", "reserved", "used", "outlives"))
        rows: list[Sequence[Cell]] = [[(phrase("policies.pools", name=run), "bold"), *heads]]
        rows += [
            [
                pool.pool,
                format_count(pool.num_segments),
                *map(format_bytes, (pool.reserved_bytes, pool.used_bytes, pool.surviving_bytes)),
            ]
            for pool in self.pools
        ]
        yield from table("lrrrr", rows)
        share = self.thought_long_bytes / self.num_bytes if self.num_bytes else 0.0
        yield paragraph(
            phrase("policies.long", share=f"{share:.0%}", bytes=format_bytes(self.thought_long_bytes)), indent=2
        )
        for kind, misfiled in (("long", self.thought_long_wrongly), ("short", self.thought_short_wrongly)):
            yield paragraph(_misfiled(kind, misfiled), indent=2)
        hooks = phrase(f"policies.hooks.{self.hooks}") if self.hooks in {"layer", "stack"} else self.hooks
        yield paragraph(phrase("policies.hooks", hooks=hooks, known=known_from(self.bases)), "dim", indent=2)


def _misfiled(kind: str, found: Misfiled) -> Phrase:
    said = phrase(f"policies.misfiled.{kind}", count=found.num, bytes=format_bytes(found.num_bytes))
    return joined((said, phrase(f"policies.cost.{kind}", bytes=format_bytes(found.cost_bytes)) if found.num else ""))
