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
    """One pool at the reserved peak.

    Attributes:
        name: Name of the pool.
        num_segments: Number of its segments.
        reserved_bytes: Bytes reserved.
        allocated_bytes: Bytes allocated.
        outliving_bytes: Bytes allocated to tensors that outlive the window in which they were allocated.
    """

    name: str
    num_segments: int
    reserved_bytes: int
    allocated_bytes: int
    outliving_bytes: int


@dataclass(frozen=True, slots=True)
class Misfiled:
    """Tensors that were allocated in the wrong pool.

    Attributes:
        num_tensors: Number of tensors over the whole replay.
        total_bytes: Bytes of the blocks of these tensors over the whole replay.
        live_at_peak_bytes: Bytes of those blocks that were live at the reserved peak.
        cost_bytes: Cost of these tensors at the reserved peak. For false long-lived tensors: idle bytes of segments
            that were reserved for them. For false short-lived tensors: free bytes in short-lived segments that a
            surviving tensor retains.
    """

    num_tensors: int
    total_bytes: int
    live_at_peak_bytes: int
    cost_bytes: int


@dataclass(frozen=True, slots=True)
class LifetimePools:
    """Outcome of lifetime-segregated pools.

    Attributes:
        hooks: Unit that counted as a forward call: "layer" or "stack".
        bases: Basis of the marks for each of "setup", "forward", "step" and "optimizer".
        total_bytes: Bytes of all allocated blocks over the whole replay.
        long_lived_bytes: Bytes of tensors classified as long-lived.
        false_long_lived: Tensors classified as long-lived, but freed within the window in which they were allocated.
        false_short_lived: Tensors classified as short-lived within a window, but still live when it ended.
        pools: The four pools at the reserved peak.
    """

    key: ClassVar[str] = "lifetimes"

    hooks: str
    bases: Mapping[str, str]
    total_bytes: int
    long_lived_bytes: int
    false_long_lived: Misfiled
    false_short_lived: Misfiled
    pools: tuple[PoolState, ...]

    def rows(self, run: str) -> Iterator[DetailRow]:
        """Yields the pools, misfiled tensors, and the known facts about the program."""
        yield gap()
        heads = (phrase(f"policies.head.{head}") for head in ("segments", "reserved", "used", "outlives"))
        rows: list[Sequence[Cell]] = [[(phrase("policies.pools", name=run), "bold"), *heads]]
        rows += [
            [
                pool.name,
                format_count(pool.num_segments),
                *map(format_bytes, (pool.reserved_bytes, pool.allocated_bytes, pool.outliving_bytes)),
            ]
            for pool in self.pools
        ]
        yield from table("lrrrr", rows)
        share = self.long_lived_bytes / self.total_bytes if self.total_bytes else 0.0
        yield paragraph(
            phrase("policies.long", share=f"{share:.0%}", bytes=format_bytes(self.long_lived_bytes)), indent=2
        )
        for kind, misfiled in (("long", self.false_long_lived), ("short", self.false_short_lived)):
            yield paragraph(_misfiled(kind, misfiled), indent=2)
        hooks = phrase(f"policies.hooks.{self.hooks}") if self.hooks in {"layer", "stack"} else self.hooks
        yield paragraph(phrase("policies.hooks", hooks=hooks, known=known_from(self.bases)), "dim", indent=2)


def _misfiled(kind: str, found: Misfiled) -> Phrase:
    said = phrase(f"policies.misfiled.{kind}", count=found.num_tensors, bytes=format_bytes(found.total_bytes))
    return joined(
        (said, phrase(f"policies.cost.{kind}", bytes=format_bytes(found.cost_bytes)) if found.num_tensors else "")
    )
