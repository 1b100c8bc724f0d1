"""Collects the memory that a communication library allocates, by process, device and communicator.

A log names the thread of each allocation but not its communicator. These rules assign one, the first that applies:

1. the thread creates the communicator at that moment;
2. the thread was first seen while exactly one communicator of this process and device was being created: a proxy
   thread, which serves one communicator (or those that share its resources);
3. the thread named the communicator last;
4. the process has one live communicator on this device.

Otherwise the allocation stays unassigned. NCCL allocates some memory before it logs the begin of a communicator. Old
versions log only the end of its creation, so everything that rules 3 and 4 assigned before is reassigned to it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from memdiag.results.libraries import BufferSize, Communicator, LibraryMemory
from memdiag.sources.growing import ByteLimit
from memdiag.units import MIB

PAGE = 2 * MIB  # smallest page that cuMemCreate maps on a GPU
NOBODY = -1

_COST = 200  # bytes of a buffer, with its place in the dict of live ones
_MOST_SIZES = 8


@dataclass(slots=True)
class Comm:
    """A communicator of one process, while the log is read.

    Attributes:
        identity, name, rank, num_ranks: As in ``Communicator``.
        channels, p2p_channels: Numbers of channels.
        is_opening: Whether it is being created.
        is_closed: Whether the log contains its end.
    """

    identity: str
    rank: int | None = None
    num_ranks: int | None = None
    name: str = ""
    channels: int | None = None
    p2p_channels: int | None = None
    is_opening: bool = False
    is_closed: bool = False


@dataclass(slots=True)
class _Thread:
    creates: int = NOBODY
    home: int = NOBODY
    named: int = NOBODY
    channels: tuple[int | None, int | None] = (None, None)
    undecided: list[int] = field(default_factory=list)


class ProcessLog:
    """The allocations of one process on one device.

    Args:
        host, pid, device: The process and the device, as logged.
        budget: Memory limit.
    """

    def __init__(self, host: str, pid: int | None, device: int, budget: ByteLimit) -> None:
        self.host, self.pid, self.device = host, pid, device
        self.comms: list[Comm] = []
        self.settings: dict[str, str] = {}
        self.maps_pages = False
        self.has_frees = False
        # One row per buffer: its owner, bytes, place in the library, whether it is on the host, its pointer.
        self.owner, self.size, self.place = array("q"), array("q"), array("q")
        self.on_host = array("b")
        # One row per event: buffer, or -1 - buffer for its free.
        self.events = array("q")
        self.times = array("q")
        self._pointers = array("q")
        self._live: dict[int, int] = {}
        self._at: dict[int, int] = {}  # address of a communicator -> its index
        self._threads: dict[int, _Thread] = {}
        self._alive: dict[int, None] = {}
        self._opening: dict[int, None] = {}
        self._has_begins = False
        self._budget = budget

    def thread(self, number: int) -> _Thread:
        """Returns the state of a thread; one that appears during the creation of a communicator belongs to it."""
        known = self._threads.get(number)
        if known is None:
            self._budget.spend(_COST)
            home = next(iter(self._opening)) if len(self._opening) == 1 else NOBODY
            known = self._threads[number] = _Thread(home=home)
        return known

    def allocate(
        self,
        thread: int,
        pointer: int,
        size: int,
        place: int,
        time: int,
        *,
        on_host: bool = False,
        is_early: bool = False,
    ) -> None:
        """Adds a buffer; several lines about one buffer count once.

        Args:
            thread: The thread that allocates.
            pointer: Its address.
            size: Bytes; of two lines about one buffer, the larger size wins, since it includes rounding to pages.
            place: Number of its place in the library.
            time: Microseconds, or -1 if unknown.
            on_host: Whether it is pinned host memory.
            is_early: Whether the library may allocate it before it logs the begin of its communicator.
        """
        owner, is_known = self._owner(thread)
        known = self._live.get(pointer)
        if known is not None:
            is_same = -(-size // PAGE) == -(-self.size[known] // PAGE) and bool(self.on_host[known]) == on_host
            if is_same and owner in {NOBODY, self.owner[known]}:
                self.size[known] = max(size, self.size[known])
                return
            self._end(known, time)  # its free was not logged
        self._budget.spend(_COST)
        buffer = len(self.size)
        self.size.append(size)
        self.owner.append(owner)
        self.place.append(place)
        self.on_host.append(on_host)
        self._pointers.append(pointer)
        self._live[pointer] = buffer
        self._add(buffer, time)
        if not is_known and (is_early or not self._has_begins):
            self.thread(thread).undecided.append(buffer)

    def free(self, pointer: int, time: int) -> None:
        """Frees the buffer at an address; an unknown address belongs to memory from before the log."""
        self.has_frees = True
        buffer = self._live.get(pointer)
        if buffer is not None:
            self._end(buffer, time)

    def open(self, thread: int, address: int, comm: Comm, *, is_complete: bool) -> None:
        """Begins or completes the creation of the communicator at an address.

        Old versions of NCCL log only the completion. All memory that was allocated before and has no communicator then
        belongs to it.
        """
        index = self._at.get(address, NOBODY)
        known = self.comms[index] if index >= 0 else None
        if is_complete and known is not None and known.is_opening:
            known.is_opening = False
            self._opening.pop(index, None)
            self.thread(thread).creates = NOBODY
            return
        if known is not None:  # its end was not logged, and its address is used again
            self._close(index)
        self._budget.spend(_COST)
        state = self.thread(thread)
        index = self._at[address] = len(self.comms)
        comm.is_opening = not is_complete
        self.comms.append(comm)
        self._alive[index] = None
        state.home = NOBODY
        if is_complete:
            comm.channels, comm.p2p_channels = state.channels
            for each in self._threads.values():
                self._claim(each, index)
            return
        self._has_begins = True
        self._opening[index] = None
        self._claim(state, index)
        state.creates = index

    def created(self, thread: int) -> None:
        """Completes the creation of the communicator that a thread creates, if any."""
        state = self.thread(thread)
        if state.creates >= 0:
            self.comms[state.creates].is_opening = False
            self._opening.pop(state.creates, None)
            state.creates = NOBODY

    def close(self, address: int, time: int) -> None:
        """Ends the communicator at an address, which frees its memory."""
        index = self._at.pop(address, NOBODY)
        if index < 0:
            return
        self._close(index)
        self._budget.spend(len(self._live))  # limits the work of a log with many communicators
        for buffer in [buffer for buffer in self._live.values() if self.owner[buffer] == index]:
            self._end(buffer, time)

    def mention(self, thread: int, address: int) -> None:
        """Notes that a thread named the communicator at an address."""
        index = self._at.get(address, NOBODY)
        if index >= 0:
            state = self.thread(thread)
            state.named = index

    def channels(self, thread: int, address: int | None, collective: int | None, p2p: int | None) -> None:
        """Notes the numbers of channels of the communicator at an address, or of the one that the thread creates."""
        state = self.thread(thread)
        index = state.creates if address is None else self._at.get(address, NOBODY)
        if index < 0 and len(self._opening) == 1:
            index = next(iter(self._opening))
        if index >= 0:
            self.comms[index].channels, self.comms[index].p2p_channels = collective, p2p
        else:
            state.channels = (collective, p2p)

    def call_group(self, address: int, name: str) -> None:
        """Sets the name of the communicator at an address, if the process has one there."""
        index = self._at.get(address, NOBODY)
        if index >= 0:
            self.comms[index].name = name

    def _owner(self, thread: int) -> tuple[int, bool]:
        """Returns the communicator of an allocation, and whether the thread can serve no other one."""
        state = self.thread(thread)
        if state.creates >= 0:
            return state.creates, True
        if state.home in self._alive:
            return state.home, True
        if state.named in self._alive:
            return state.named, False
        return next(iter(self._alive)) if len(self._alive) == 1 else NOBODY, False

    def _claim(self, state: _Thread, index: int) -> None:
        """Gives a communicator the memory that a thread allocated before the log named the communicator."""
        for buffer in state.undecided:
            self.owner[buffer] = index
        state.undecided.clear()

    def _close(self, index: int) -> None:
        self.comms[index].is_closed, self.comms[index].is_opening = True, False
        self._alive.pop(index, None)
        self._opening.pop(index, None)

    def _end(self, buffer: int, time: int) -> None:
        del self._live[self._pointers[buffer]]
        self._add(-1 - buffer, time)

    def _add(self, event: int, time: int) -> None:
        self.events.append(event)
        self.times.append(time)

    def memory(self, library: str, version: str, path: str) -> LibraryMemory:
        """Returns the account of this process and device."""
        live, peak, count = Counter[int](), Counter[int](), Counter[int]()
        total, highest, host = 0, 0, 0
        for event in self.events:
            buffer, sign = (event, 1) if event >= 0 else (-1 - event, -1)
            size = sign * self.size[buffer]
            if self.on_host[buffer]:
                host += size
                continue
            owner = self.owner[buffer]
            total, live[owner] = total + size, live[owner] + size
            count[owner] += sign
            highest, peak[owner] = max(highest, total), max(peak[owner], live[owner])
        rows = [
            Communicator(
                comm.identity,
                comm.name,
                comm.rank,
                comm.num_ranks,
                comm.channels,
                comm.p2p_channels,
                live[index],
                peak[index],
                count[index],
                comm.is_closed,
            )
            for index, comm in enumerate(self.comms)
        ]
        left = [self.size[buffer] for buffer in self._live.values() if not self.on_host[buffer]]
        sizes = sorted(Counter(left).items(), key=lambda pair: (-pair[0] * pair[1], -pair[0]))
        return LibraryMemory(
            library,
            version,
            path,
            self.host,
            self.pid,
            self.device,
            total,
            highest,
            sum(-(-size // PAGE) * PAGE for size in left) if self.maps_pages else None,
            host,
            live[NOBODY],
            tuple(sorted(rows, key=lambda comm: (-comm.peak_bytes, comm.identity))),
            tuple(BufferSize(size, number) for size, number in sizes[:_MOST_SIZES]),
            dict(self.settings),
        )


class LibraryLog:
    """All processes of a log.

    Args:
        library: "NCCL" or "HCCL", until the log says otherwise.
        budget: Memory limit.
    """

    def __init__(self, library: str, budget: ByteLimit) -> None:
        self.library = library
        self.version = ""
        self.places: dict[tuple[str, int, str], int] = {}
        self._processes: dict[tuple[str, int | None, int], ProcessLog] = {}
        self._budget = budget

    def process(self, host: str, pid: int | None, device: int) -> ProcessLog:
        """Returns the state of a process on a device."""
        key = (host, pid, device)
        known = self._processes.get(key)
        if known is None:
            self._budget.spend(10 * _COST)
            known = self._processes[key] = ProcessLog(host, pid, device, self._budget)
        return known

    def place(self, file: str, line: int, name: str) -> int:
        """Returns the number of a place in the library."""
        key = (file, line, name)
        known = self.places.get(key)
        if known is None:
            self._budget.spend(_COST + len(file) + len(name))
            known = self.places[key] = len(self.places)
        return known

    def with_memory(self) -> list[ProcessLog]:
        """Returns the processes and devices with allocations, in order of the log."""
        return [process for process in self._processes.values() if len(process.events)]

    def call_group(self, address: int, name: str) -> None:
        """Sets the name of the communicator at an address, in each process that has one there."""
        for process in self._processes.values():
            process.call_group(address, name)

    def memories(self, path: str) -> Iterator[LibraryMemory]:
        """Yields the account of each process and device."""
        for process in self.with_memory():
            yield process.memory(self.library, self.version, path)
