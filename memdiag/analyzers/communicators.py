"""Device memory that the communicators of NCCL, RCCL or HCCL hold outside the allocator, from the library's log.

The allocator cannot use this memory, and a snapshot does not contain it. The texts are in
``messages/communicators.json``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.diagnosis.remedies import offer, present
from memdiag.diagnosis.remedies.model import Situation
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.results.libraries import Communicator, LibraryMemory
from memdiag.text import joined, phrase
from memdiag.trace.model import Trace
from memdiag.units import GIB, MIB, format_bytes

CODES: dict[str, str] = {"MD141": "communicators hold device memory outside the allocator"}

FLOOR = 64 * MIB
WARNING_FLOOR = 2 * GIB
WARNING_SHARE = 0.05  # of the device
SINGLE_FLOOR = 64 * MIB
NUM_COMMUNICATORS = 6
NUM_SIZES = 3

_BACKENDS: Mapping[str, str] = {"NCCL": "cuda", "RCCL": "hip", "HCCL": "npu"}
_SMALL_BUFFERS = 2 * MIB  # a buffer size that nobody needs advice to lower


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD141 for every library and process on a device."""
    for view in context.views(trace):
        for memory in trace.libraries:
            if memory.device == view.device.device and memory.peak_bytes >= FLOOR:
                yield _finding(view, memory)


def _finding(view: DeviceView, memory: LibraryMemory) -> Finding:
    held = memory.live_bytes or memory.peak_bytes
    capacity = view.device.capacity_bytes
    is_much = held >= WARNING_FLOOR if capacity is None else held >= WARNING_SHARE * capacity
    count = sum(comm.peak_bytes > 0 for comm in memory.communicators)
    return Finding(
        "MD141",
        phrase("communicators.title", library=memory.library, bytes=format_bytes(held), count=count),
        "warning" if is_much else "info",
        view.device.device,
        tuple(_evidence(view, memory)),
        _fixes(memory),
        weight_bytes=held,
    )


def _evidence(view: DeviceView, memory: LibraryMemory) -> Iterator[Evidence]:
    what = f"{memory.library} {memory.version}".strip()
    yield Evidence(phrase("communicators.live"), memory.live_bytes, "bytes", what)
    if memory.peak_bytes > memory.live_bytes:
        yield Evidence(phrase("communicators.peak"), memory.peak_bytes, "bytes")
    if memory.page_bytes is not None and memory.page_bytes > memory.live_bytes:
        yield Evidence(phrase("communicators.pages"), memory.page_bytes, "bytes")
    yield from _outside(view, memory)
    for comm in memory.communicators[:NUM_COMMUNICATORS]:
        name = comm.name or comm.identity
        what = phrase("communicators.one" if comm.live_bytes else "communicators.freed", name=name)
        yield Evidence(what, comm.live_bytes or comm.peak_bytes, "bytes", _size_of(comm))
    others = memory.communicators[NUM_COMMUNICATORS:]
    if others:
        total = sum(comm.live_bytes for comm in others)
        yield Evidence(phrase("communicators.others", count=len(others)), total, "bytes")
    if memory.unassigned_bytes:
        yield Evidence(phrase("communicators.unassigned"), memory.unassigned_bytes, "bytes")
    for row in memory.sizes[:NUM_SIZES]:
        size, where = format_bytes(row.bytes), phrase("communicators.buffers", count=row.count)
        yield Evidence(phrase("communicators.size", bytes=size), row.bytes * row.count, "bytes", where)
    if memory.host_bytes:
        yield Evidence(phrase("communicators.host"), memory.host_bytes, "bytes")
    for name, value in memory.settings.items():
        if "BUFFSIZE" in name or "NCHANNELS" in name or "CTAS" in name:
            yield Evidence(phrase("communicators.setting"), f"{name}={value}")


def _outside(view: DeviceView, memory: LibraryMemory) -> Iterator[Evidence]:
    """Yields the memory outside the allocator according to the driver, and the part of it that no log explains."""
    outside = view.device.card.outside_bytes
    if outside is None:
        return
    yield Evidence(phrase("communicators.outside"), outside, "bytes")
    rest = outside - sum(each.live_bytes for each in view.trace.libraries if each.device == memory.device)
    if rest >= 0:
        yield Evidence(phrase("communicators.rest"), rest, "bytes")


def _size_of(comm: Communicator) -> str:
    """Returns rank, channels and number of buffers of a communicator, without unknown ones."""
    words = []
    if comm.num_ranks is not None:
        words.append(phrase("communicators.rank", rank=str(comm.rank), count=comm.num_ranks))
    if comm.num_channels is not None:
        words.append(phrase("communicators.channels", count=comm.num_channels))
    if comm.num_buffers:
        words.append(phrase("communicators.buffers", count=comm.num_buffers))
    return joined(words, ", ")


def _fixes(memory: LibraryMemory) -> tuple[Fix, ...]:
    """Returns the remedies: fewer and smaller buffers, fewer communicators."""
    situation = Situation(backend=_BACKENDS.get(memory.library, ""))
    if memory.library == "HCCL":
        return present(offer("hccl-buffers", situation))
    live = [comm for comm in memory.communicators if comm.live_bytes]
    single = sum(comm.live_bytes for comm in live if comm.num_ranks == 1)
    names = ["nccl-p2p-channels", "nccl-channels"] if any((comm.num_ranks or 2) > 1 for comm in live) else []
    size = memory.settings.get("NCCL_BUFFSIZE", "")
    if not (size.isdigit() and int(size) <= _SMALL_BUFFERS):
        names.append("nccl-buffers")
    if len(live) > 1:
        names.append("shared-communicators")
    return present(
        offer("single-rank-groups", situation) if single >= SINGLE_FLOOR else None,
        *(offer(name, situation) for name in names),
    )
