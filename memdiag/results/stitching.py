"""The result of stitching free blocks together in a simulated run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stitching:
    """How it went, over the whole run.

    Attributes:
        frag_limit_bytes: Requests below it are not stitched together.
        num_exact, num_cut: Large requests that got one free block, of just their size or cut from a larger one.
        num_reused: Those that got a stitched block made for an earlier one.
        num_stitched, stitched_bytes: Those for which free blocks were stitched together.
        num_new: Those that needed new memory.
        num_pieces: Most pieces that one tensor lay in.
        num_maps: Calls of the driver that map a chunk of 2 MiB, those for new memory (``num_created``) and those for
            stitching.
        num_created: Chunks of memory obtained.
        num_unmaps: Calls that unmap one.
        num_taken_apart: Stitched blocks unmapped again.
        peak_stitched_bytes: Most address space that stitched blocks took at a time, beside that of the memory itself.
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
