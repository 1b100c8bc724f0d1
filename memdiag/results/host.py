"""Host memory in a report: pinned memory from the history of PyTorch's host allocator."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.results.sites import Site


@dataclass(frozen=True, slots=True)
class PinnedMemory:
    """Pinned host memory of PyTorch's caching host allocator.

    Blocks are sizes after rounding, which the allocator does to powers of two. A snapshot does not record the sizes
    before rounding.

    Attributes:
        peak_reserved_bytes: Peak of the memory obtained from the operating system, or None without a history.
        peak_allocated_bytes: Peak of the blocks in use, or None without a history.
        peak_at_us: Time of the peak of the blocks in use, or None if unknown.
        end_reserved_bytes: Memory obtained from the operating system at the end.
        end_allocated_bytes: Blocks in use at the end.
        num_blocks: Blocks at the end, in use or cached.
        top_sites: Call sites of most bytes in use at that peak, or at the end without a history.
    """

    peak_reserved_bytes: int | None
    peak_allocated_bytes: int | None
    peak_at_us: int | None
    end_reserved_bytes: int
    end_allocated_bytes: int
    num_blocks: int
    top_sites: tuple[Site, ...] = ()


@dataclass(frozen=True, slots=True)
class HostReport:
    """Memory of the host.

    Attributes:
        pinned: Pinned memory, or None if the file does not record it.
    """

    pinned: PinnedMemory | None = None
