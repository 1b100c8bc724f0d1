"""Device memory that communication libraries allocate themselves, outside the framework's allocator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Communicator:
    """The memory of one communicator in one process.

    Attributes:
        identity: The id that all its ranks share ("0xf021d9037f9243d8"), or the address of the communicator in the
            process if the log has no id.
        name: Name of the process group that uses the communicator, or "" if unknown.
        rank: Rank of the process in the communicator, or None if unknown.
        num_ranks: Number of ranks of the communicator, or None if unknown.
        num_channels: Number of channels for collectives, or None if unknown.
        num_p2p_channels: Number of channels for send and receive, or None if unknown.
        live_bytes: Device memory that the communicator holds at the end of the log.
        peak_bytes: Most device memory that the communicator held.
        num_buffers: Number of allocations that the communicator holds at the end of the log.
        is_destroyed: Whether the log shows the end of the communicator.
    """

    identity: str
    name: str
    rank: int | None
    num_ranks: int | None
    num_channels: int | None
    num_p2p_channels: int | None
    live_bytes: int
    peak_bytes: int
    num_buffers: int
    is_destroyed: bool


@dataclass(frozen=True, slots=True)
class BufferSize:
    """Allocations of one size.

    Attributes:
        bytes: Size of each allocation.
        count: Number of allocations of this size at the end of the log.
    """

    bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class LibraryMemory:
    """Memory of a communication library on one device in one process, from its log.

    Attributes:
        library: "NCCL", "RCCL" or "HCCL".
        version: Version of the library, or "" if unknown.
        path: The log.
        host: Name of the host, or "" if unknown.
        pid: Process id, or None if unknown.
        device: Index of the device, as the library numbers it.
        live_bytes: Device memory that the library holds at the end of the log.
        peak_bytes: Most device memory that it held.
        page_bytes: ``live_bytes`` with every allocation rounded up to pages of 2 MiB, if the library maps pages itself
            (cuMem); None otherwise.
        host_bytes: Pinned host memory that the library holds at the end of the log.
        unassigned_bytes: Part of ``live_bytes`` that the log assigns to no communicator.
        communicators: The communicators, those with the most memory first.
        sizes: The sizes that hold the most memory at the end of the log, the largest total first.
        settings: Settings of the library that the log names.
    """

    library: str
    version: str
    path: str
    host: str
    pid: int | None
    device: int
    live_bytes: int
    peak_bytes: int
    page_bytes: int | None
    host_bytes: int
    unassigned_bytes: int
    communicators: tuple[Communicator, ...] = ()
    sizes: tuple[BufferSize, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
