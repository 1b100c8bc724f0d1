"""Invented logs of NCCL, RCCL and HCCL with the wordings of several versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

MIB = 1 << 20


@dataclass
class NcclProcess:
    """Writes the lines of one process on one device.

    Attributes:
        pid: Process id; the main thread has the same number.
        device: CUDA device.
        prefix: Text before every line, such as a time.
    """

    pid: int = 4000
    device: int = 0
    prefix: str = ""
    lines: list[str] = field(default_factory=list)
    next_pointer: int = 0x7F00_0000_0000

    def say(self, text: str, thread: int | None = None) -> None:
        """Adds a line at the level INFO."""
        self.lines.append(f"{self.prefix}node1:{self.pid}:{thread or self.pid} [{self.device}] NCCL INFO {text}")

    def trace(self, text: str, thread: int | None = None) -> None:
        """Adds a line at the level TRACE."""
        self.lines.append(
            f"{self.prefix}node1:{self.pid}:{thread or self.pid} [{self.device}] 12.345678 ncclCudaFree:559"
            f" NCCL TRACE {text}"
        )

    def pointer(self, size: int) -> int:
        """Returns a new address."""
        self.next_pointer += -(-size // (2 * MIB)) * 2 * MIB
        return self.next_pointer

    def shareable(self, size: int, thread: int) -> int:
        """Adds the line of a P2P buffer; returns its address."""
        at = self.pointer(size)
        self.say(f"Allocated shareable buffer {at:#x} size {size} ipcDesc 0x7f00aa004f40", thread)
        return at

    def alloc(self, size: int, place: str = "channel.cc:52", thread: int | None = None, tail: str = "") -> int:
        """Adds the line of an allocation; returns its address."""
        at = self.pointer(size)
        self.say(f"{place} Cuda Alloc Size {size} pointer {at:#x}{tail}", thread)
        return at

    def begin(self, comm: int, thread: int, rank: int = 0, ranks: int = 8, identity: str = "f021d9037f9243d8") -> None:
        """Adds the begin of a communicator's creation."""
        self.say(self._init(comm, rank, ranks, f"commId 0x{identity}") + " - Init START", thread)

    def complete(
        self, comm: int, thread: int, rank: int = 0, ranks: int = 8, identity: str = "f021d9037f9243d8"
    ) -> None:
        """Adds the end of a communicator's creation."""
        self.say(
            "32 coll channels, 32 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer", thread
        )
        self.say(self._init(comm, rank, ranks, f"commId 0x{identity}") + " - Init COMPLETE", thread)

    def _init(self, comm: int, rank: int, ranks: int, identity: str) -> str:
        place = f"rank {rank} nranks {ranks} cudaDev {self.device} nvmlDev {self.device} busId 18000"
        return f"ncclCommInitRankConfig comm {comm:#x} {place} {identity}"

    @property
    def text(self) -> str:
        """The log."""
        return "".join(f"{line}\n" for line in self.lines)


def all_to_all(pid: int = 4000, device: int = 0, ranks: int = 8, channels: int = 32) -> NcclProcess:
    """Returns the log of a communicator that an all-to-all connects to every peer.

    The sizes are those of NCCL on GPUs with NVLink: for each peer and channel, one buffer of 10 MiB to receive, and one
    of 2 MiB for each direction.
    """
    log = NcclProcess(pid, device)
    log.begin(0x55AA, pid + 10, device, ranks)
    log.say("[Proxy Service] Device 0 CPU core 10", pid + 11)
    log.complete(0x55AA, pid + 10, device, ranks)
    for channel in range(channels):
        for peer in range(ranks - 1):
            for size in (10 * MIB, 2 * MIB, 2 * MIB):
                log.shareable(size, pid + 11)
            log.say(f"Channel {channel:02}/1 : {device}[{device}] -> {peer}[{peer}] via P2P/CUMEM", pid)
    return log


def several(logs: list[NcclProcess]) -> Iterator[str]:
    """Yields the lines of several processes, interleaved."""
    for row in range(max(len(log.lines) for log in logs)):
        yield from (log.lines[row] for log in logs if row < len(log.lines))
