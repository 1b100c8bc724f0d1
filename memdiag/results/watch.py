"""Results of ``memdiag watch``: the memory of a running process at one moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WatchedSite:
    """A call site that holds device memory.

    Attributes:
        device: The device.
        bytes: Bytes in live blocks.
        num_blocks: Number of live blocks.
        name: Short name of the call site; "": no stack, as of blocks older than the history or made by autograd.
        stack: Call stack, innermost frame first.
    """

    device: str
    bytes: int
    num_blocks: int
    name: str
    stack: tuple[str, ...]


@dataclass(frozen=True)
class WatchedDevice:
    """A device that the process uses. A value that is unknown is null.

    Attributes:
        device: The device, such as cuda:0.
        name: Product name.
        total_bytes: Memory of the device.
        limit_bytes: Memory that the process may reserve: all of it, or the fraction that the program has set.
        free_bytes: Free memory according to the driver.
        reserved_bytes: Memory reserved by the allocator.
        active_bytes: Memory in blocks that are in use or wait for a stream.
        allocated_bytes: Memory in blocks of live tensors.
        requested_bytes: Memory that live tensors asked for, without rounding.
        peak_reserved_bytes, peak_allocated_bytes: Reserved and allocated peak so far.
        num_retries: Requests for which the allocator released cached memory first.
        num_ooms: Requests that failed.
        growth_bytes_per_minute: Trend of allocated memory; 0: no significant trend.
        distance_bytes: Memory that the process can still allocate at most: free, within its limit, or cached.
    """

    device: str
    name: str
    total_bytes: int
    limit_bytes: int
    free_bytes: int | None
    reserved_bytes: int | None
    active_bytes: int | None
    allocated_bytes: int | None
    requested_bytes: int | None
    peak_reserved_bytes: int | None
    peak_allocated_bytes: int | None
    num_retries: int | None
    num_ooms: int | None
    growth_bytes_per_minute: int | None
    distance_bytes: int | None

    @property
    def used_bytes(self) -> int | None:
        """Used memory of the device, of all processes."""
        return None if self.free_bytes is None else self.total_bytes - self.free_bytes

    @property
    def parts(self) -> dict[str, int] | None:
        """The memory of the whole card in parts that sum to its size; None if a part is unknown.

        tensors: blocks of live tensors; pending: freed blocks that wait for a stream; cached: reserved and free;
        outside: used, but not by this allocator; free: free according to the driver.
        """
        known = (self.allocated_bytes, self.active_bytes, self.reserved_bytes)
        if self.free_bytes is None or None in known:
            return None
        allocated, active, reserved = (value or 0 for value in known)
        outside = self.total_bytes - self.free_bytes - reserved
        return {
            "tensors": allocated,
            "pending": active - allocated,
            "cached": reserved - active,
            "outside": outside,
            "free": self.free_bytes,
        }

    @property
    def minutes_left(self) -> float | None:
        """Minutes until the memory is full if it keeps growing; None: it does not grow, or the trend is unknown."""
        if not self.growth_bytes_per_minute or self.growth_bytes_per_minute < 0 or self.distance_bytes is None:
            return None
        return self.distance_bytes / self.growth_bytes_per_minute


@dataclass(frozen=True)
class WatchReading:
    """The memory of a process at one moment. A value that is unknown is null.

    Attributes:
        time: Seconds since 1970.
        pid: The process.
        rank: Rank of the process.
        torch_version: Version of its torch.
        mechanism: How memdiag entered the process.
        steps: Training steps since the watch began.
        steps_per_minute: Rate of the last readings.
        history: Whether the history of allocations is recorded.
        is_late: Whether a device could not be read, because the main thread waits in a library.
        devices: The devices that the process uses.
        host_bytes: Resident memory of the process.
        children_bytes: Resident memory of its child processes, at all levels.
        host_limit_bytes: Memory limit of the cgroup of the process.
        host_used_bytes: Memory used in the cgroup of the process, without file pages that can be dropped.
        sites: Largest call sites, while the history is recorded.
        cost_seconds: Processor time that the agent took for this reading.
    """

    time: float
    pid: int
    rank: int | None
    torch_version: str
    mechanism: str
    steps: int | None
    steps_per_minute: float | None
    history: bool
    is_late: bool
    devices: tuple[WatchedDevice, ...]
    host_bytes: int | None
    children_bytes: int | None
    host_limit_bytes: int | None
    host_used_bytes: int | None
    sites: tuple[WatchedSite, ...]
    cost_seconds: float
