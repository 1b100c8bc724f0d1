"""Host memory in a report: samples of a recording, and the history of PyTorch's pinned memory."""

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
        top_sites: Call sites that hold most bytes in use at the peak, or at the end if there is no history.
    """

    peak_reserved_bytes: int | None
    peak_allocated_bytes: int | None
    peak_at_us: int | None
    end_reserved_bytes: int
    end_allocated_bytes: int
    num_blocks: int
    top_sites: tuple[Site, ...] = ()


@dataclass(frozen=True, slots=True)
class HostMoment:
    """Memory of the host at one moment; None if unknown.

    Attributes:
        at_us: Time in microseconds since 1970.
        when: "start", "phase", "step", "mark", "timer", "oom", "end", "save" (before a checkpoint is saved) or "saved".
        step: Number of completed training steps.
        rss_bytes: Resident memory of the process.
        children_rss_bytes: Sum of the resident memory of its child processes, at all levels. Shared pages count in each
            of them.
        num_children: Number of its child processes, at all levels, such as workers of a DataLoader.
        pss_bytes: Proportional memory of the process and its child processes: shared pages are divided among their
            users.
        peak_rss_bytes: Highest resident memory of the process so far.
        shm_used_bytes: Files in /dev/shm, of all processes of the machine or container.
        shm_total_bytes: Size of /dev/shm.
        cgroup_used_bytes: Memory of the cgroup without file pages that the kernel can drop.
        cgroup_limit_bytes: Limit of the cgroup.
        pinned_bytes: Pinned memory of PyTorch's host allocator, cached blocks included.
        pinned_used_bytes: Pinned memory in use.
        pinned_tensors_bytes: Pinned tensors of at least 1 MiB that the program holds.
        pinned_blocks_bytes: Blocks of the tensors in ``pinned_tensors_bytes``, which the allocator rounds up to powers
            of two.
        mps_used_bytes: Tensors of PyTorch's MPS allocator (Apple silicon), which are in the memory of the machine.
        mps_driver_bytes: Everything that Metal allocated for this process, cached blocks included.
        mps_limit_bytes: Memory that Metal recommends not to exceed.
    """

    at_us: int
    when: str
    step: int
    rss_bytes: int | None
    children_rss_bytes: int | None
    num_children: int | None
    pss_bytes: int | None
    peak_rss_bytes: int | None
    shm_used_bytes: int | None
    shm_total_bytes: int | None
    cgroup_used_bytes: int | None
    cgroup_limit_bytes: int | None
    pinned_bytes: int | None
    pinned_used_bytes: int | None
    pinned_tensors_bytes: int | None = None
    pinned_blocks_bytes: int | None = None
    mps_used_bytes: int | None = None
    mps_driver_bytes: int | None = None
    mps_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class HostReport:
    """Memory of the host.

    Attributes:
        pinned: Pinned memory from the history of PyTorch's host allocator, or None if the file does not record it.
        timeline: Memory at the samples of a recording, on the same clock as the device; at most about 200 samples.
    """

    pinned: PinnedMemory | None = None
    timeline: tuple[HostMoment, ...] = ()
