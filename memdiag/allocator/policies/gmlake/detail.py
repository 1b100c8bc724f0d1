"""Result of stitching free blocks together in a simulated run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from memdiag.results.detail import Cell, DetailRow, gap, paragraph, table
from memdiag.text import joined, phrase
from memdiag.units import format_bytes, format_count


@dataclass(frozen=True, slots=True)
class Stitching:
    """Outcome of stitching over the whole run.

    Attributes:
        frag_limit_bytes: Smallest request for which free blocks are stitched together.
        num_exact: Large requests served by a free block of exactly their size.
        num_split: Large requests served by splitting a larger free block.
        num_reused: Requests served by an existing stitched block.
        num_stitched: Requests for which free blocks were stitched together.
        stitched_bytes: Bytes of those requests.
        num_new: Requests that needed new memory.
        max_blocks_per_tensor: Largest number of primitive blocks in one tensor.
        num_maps: Driver calls that map a 2 MiB chunk, for new memory (``num_created``) and for stitching.
        num_created: Chunks of memory created.
        num_unmaps: Driver calls that unmap a chunk.
        num_unstitched: Stitched blocks that were unmapped again.
        peak_stitched_bytes: Peak address space of stitched blocks, in addition to that of the memory itself.
    """

    key: ClassVar[str] = "stitching"

    frag_limit_bytes: int
    num_exact: int
    num_split: int
    num_reused: int
    num_stitched: int
    stitched_bytes: int
    num_new: int
    max_blocks_per_tensor: int
    num_maps: int
    num_created: int
    num_unmaps: int
    num_unstitched: int
    peak_stitched_bytes: int

    def rows(self, run: str) -> Iterator[DetailRow]:
        """Yields how large requests got their memory, and their driver calls."""
        yield gap()
        limit = format_bytes(self.frag_limit_bytes)
        yield paragraph(phrase("policies.stitch", name=run), "bold", indent=2)
        names = ("exact", "cut", "reused", "stitched", "new")
        counts = (self.num_exact, self.num_split, self.num_reused, self.num_stitched, self.num_new)
        rows: list[list[Cell]] = [
            [phrase(f"policies.stitch.{word}"), format_count(count)] for word, count in zip(names, counts, strict=True)
        ]
        yield from table("lr", rows, indent=4)
        if self.num_stitched:
            sizes = {"limit": limit, "bytes": format_bytes(self.stitched_bytes)}
            yield paragraph(
                phrase("policies.stitch.done", count=self.num_stitched, pieces=self.max_blocks_per_tensor, **sizes),
                indent=2,
            )
        else:
            yield paragraph(phrase("policies.stitch.nothing", limit=limit), indent=2)
        stitched = self.num_maps - self.num_created
        calls = phrase(
            "policies.stitch.calls", maps=self.num_maps, new=self.num_created, stitched=stitched, unmaps=self.num_unmaps
        )
        peak = self.peak_stitched_bytes
        yield paragraph(
            joined((calls, phrase("policies.stitch.addresses", bytes=format_bytes(peak)) if peak else "")), indent=2
        )
