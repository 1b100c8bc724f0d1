"""Result of stitching free blocks together in a simulated run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stitching:
    """Outcome of stitching over the whole run.

    Attributes:
        frag_limit_bytes: Requests below it are not stitched together.
        num_exact, num_cut: Large requests served by one free block, of exactly their size or split from a larger one.
        num_reused: Requests served by an existing stitched block.
        num_stitched, stitched_bytes: Requests for which free blocks were stitched together.
        num_new: Requests that needed new memory.
        num_pieces: Largest number of primitive blocks in one tensor.
        num_maps: Driver calls that map a 2 MiB chunk, for new memory (``num_created``) and for stitching.
        num_created: Chunks of memory created.
        num_unmaps: Driver calls that unmap a chunk.
        num_taken_apart: Stitched blocks that were unmapped again.
        peak_stitched_bytes: Peak address space of stitched blocks, in addition to that of the memory itself.
    """

    frag_limit_bytes: int
    num_exact: int
    num_cut: int
    num_reused: int
    num_stitched: int
    stitched_bytes: int
    num_new: int
    num_pieces: int
    num_maps: int
    num_created: int
    num_unmaps: int
    num_taken_apart: int
    peak_stitched_bytes: int
