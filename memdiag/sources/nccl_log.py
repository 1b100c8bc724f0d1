"""The log of NCCL and RCCL with ``NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ALLOC``: memory outside the allocator.

Every line about device memory becomes an allocation. The log of a released build contains frees only where a
communicator ends, so a buffer stays live until then.
"""

from __future__ import annotations

from pathlib import Path

from memdiag.results.libraries import LibraryMemory
from memdiag.sources.growing import ByteLimit
from memdiag.sources.guard import guard
from memdiag.sources.library_log import Comm, LibraryLog, ProcessLog
from memdiag.sources.library_trace import build, memories_of
from memdiag.sources.log_lines import lines_of, time_in
from memdiag.sources.nccl_lines import (
    Allocation,
    Channels,
    Closing,
    Fact,
    Free,
    MapsPages,
    Mention,
    NcclSetting,
    Opening,
    fact_of,
    group_in,
    head_of,
    version_in,
)
from memdiag.text import phrase
from memdiag.trace.model import Trace

FORMAT = "nccl-log"

_WHAT, _HINT = "sources.nccl-log", "sources.nccl-log.hint"
_TIMED = (Allocation, Free, Closing)  # facts that become events


def sniff(head: bytes) -> bool:
    """Returns whether any line is one of NCCL's log."""
    if b"NCCL INFO" not in head and b"NCCL TRACE" not in head:
        return False
    return any(head_of(line) is not None for line in head.decode("utf-8", "replace").splitlines())


def read(path: Path) -> Trace:
    """Reads a log.

    Raises:
        RefusedFile: It is damaged, or contains no allocations of device memory.
    """
    with guard(path, _WHAT, _HINT):
        return build(path, FORMAT, parse(path), phrase(_HINT))


def read_memories(path: Path) -> list[LibraryMemory]:
    """Returns the memory of the library for each process and device of a log.

    Raises:
        RefusedFile: It is damaged, or contains no allocations of device memory.
    """
    return memories_of(path, parse, _WHAT, _HINT)


def parse(path: Path) -> LibraryLog:
    """Returns the content of a log."""
    budget = ByteLimit(path)
    log = LibraryLog("NCCL", budget)
    for line in lines_of(path, budget):
        if version := version_in(line):
            log.library, log.version = version
        found = head_of(line)
        if found is None:
            if group := group_in(line):
                log.call_group(*group)
            continue
        head, text = found
        fact = fact_of(text)
        if fact is None:
            log.process(head.host, head.pid, head.device).thread(head.thread)
        else:
            time = time_in(line) if isinstance(fact, _TIMED) else -1
            _add(log, log.process(head.host, head.pid, head.device), head.thread, fact, time)
    return log


def _add(log: LibraryLog, process: ProcessLog, thread: int, fact: Fact, time: int) -> None:
    """Applies the fact of a line to the state of its process."""
    match fact:
        case Allocation():
            name = fact.function or fact.kind
            process.maps_pages |= fact.is_mapped
            process.allocate(
                thread,
                fact.pointer,
                fact.size,
                log.place(fact.file, fact.line, name),
                time,
                on_host=fact.on_host,
                is_early=fact.file.endswith("init.cc"),
            )
        case Free():
            process.free(fact.pointer, time)
        case Opening():
            process.open(thread, fact.comm, _comm_of(fact), is_complete=fact.is_complete)
        case Closing():
            process.close(fact.comm, time)
        case Channels():
            process.channels(thread, fact.comm, fact.collective, fact.p2p)
        case NcclSetting():
            process.settings[fact.name] = fact.value
        case Mention():
            process.mention(thread, fact.comm)
        case MapsPages():
            process.maps_pages = True


def _comm_of(fact: Opening) -> Comm:
    if fact.identity:
        identity = f"0x{fact.identity}"
    elif fact.parent is not None:
        identity = f"0x{fact.parent:x}/{fact.color}"
    else:
        identity = f"0x{fact.comm:x}"
    return Comm(identity, fact.rank, fact.num_ranks)
