"""The account of a device's memory at the failure: every byte of the card is somebody's, free, or said to be unknown.

What the driver prints (free, processes) is laid out first, then what the allocator counts. Where the allocator counts more than there
is room for (oversubscribed cards, pools whose pages were given back while they sleep), the rest is not on the card: the entry is cut
to the room left and says how much it counted.
"""

from __future__ import annotations

from memdiag.oom.arithmetic import Numbers, numbers_of
from memdiag.oom.model import Found, LedgerEntry
from memdiag.units import KIB, MIB, format_bytes

# Half of the last printed digit ("12.34 GiB"): by so much a printed size may be wrong.
_HALF_DIGIT = 10 * MIB // 2 + 128 * KIB
_UNSEEN = {"npu": "context, operator workspaces and HCCL of this process", "mps": "other programs"}
_ALLOCATORS = {"julia": "CUDA.jl"}  # by framework, whose the caching allocator is where it is not PyTorch
_UNSEEN_HERE = "context and libraries of this process"


def account(found: Found) -> tuple[LedgerEntry, ...]:
    """Returns the ledger of a message: parts that add up to the total, which comes last; empty where nothing is printed.

    Where the total is not printed, its size is None and the parts are what is printed, without a remainder.
    """
    numbers = numbers_of(found.fields, found.backend)
    if found.backend == "cpu":
        return _of_host(numbers)
    room = _Room(numbers.total)
    free = [] if numbers.free is None else room.take("free", numbers.free, "free", "printed")
    whose = _ALLOCATORS.get(found.framework, "PyTorch")
    own = _own(numbers, room, whose, "printed" if {"unallocated_bytes", "cached_bytes"} & found.fields.keys() else "computed")
    others = _others(numbers, room)
    if not (free or own or others):
        return ()  # nothing is known but, perhaps, the size of the device: no account
    total = LedgerEntry("total", numbers.total, "total", "printed")
    return (*own, *others, *free, *_rest(found, numbers, room, len(own) + len(others) + len(free)), total)


class _Room:
    """What is left of the card while entries are laid out."""

    def __init__(self, total: int | None) -> None:
        self.left = total

    def take(self, what: str, size: int, owner: str, basis: str) -> list[LedgerEntry]:
        """Lays out an entry, cut to the room that is left; nothing for no bytes."""
        fitting = size if self.left is None else min(size, self.left)
        if self.left is not None:
            self.left -= fitting
        if size - fitting > 2 * _HALF_DIGIT:
            what, basis = f"{what} ({format_bytes(size)} counted, {format_bytes(size - fitting)} more than there is room for)", "inferred"
        elif fitting != size:
            basis = "computed"  # too large by the rounding of what is printed
        if size == 0 and owner != "free":
            return []
        return [LedgerEntry(what, fitting, owner, basis)]  # type: ignore[arg-type]  # literals of this file


def _own(numbers: Numbers, room: _Room, whose: str, slack_basis: str) -> list[LedgerEntry]:
    """This process: what its allocator counts, then what the driver sees of it beyond that."""
    likely = numbers.likely_this
    process = likely[1] if likely else numbers.process
    inside = room if process is None else _Room(process if room.left is None else min(process, room.left))
    before = inside.left
    held = numbers.slack if numbers.slack is not None else 0
    entries = []
    # The slack and the free part of pools keep their pages longest: laid out first, shown after what is in use.
    unused = inside.take("reserved but unallocated", held, "this process", slack_basis)
    pools = inside.take("free in private pools (CUDA graphs, MemPool)", numbers.pool, "this process", "printed")
    if numbers.live is not None:
        basis = "computed" if numbers.pool else "printed"
        entries = inside.take(f"allocated by {whose}" if numbers.slack is not None else "allocated", numbers.live, "this process", basis)
    if numbers.slack is None and numbers.reserved is not None and numbers.allocated is not None:
        entries += inside.take("other allocations", max(numbers.reserved - numbers.allocated, 0), "this process", "printed")
    entries += [*pools, *unused]
    if process is None or inside.left is None:
        return entries
    what = _outside_here(numbers, whose) if numbers.allocated is not None else "this process"
    if likely:
        what += f" (process {likely[0]} is taken to be this one)"
    rest = inside.take(what, inside.left, "this process", "inferred" if likely else "computed" if entries else "printed")
    if room.left is not None and before is not None:
        room.left -= before
    return entries + rest


def _outside_here(numbers: Numbers, whose: str) -> str:
    if numbers.slack is None:
        return "reserved but unallocated, or outside the allocator in this process"
    return f"outside {whose} in this process (context, libraries, communication)"


def _others(numbers: Numbers, room: _Room) -> list[LedgerEntry]:
    """Every other process that is listed."""
    return [entry for pid, size in numbers.strangers for entry in room.take(f"process {pid}", size, "other processes", "printed")]


def _rest(found: Found, numbers: Numbers, room: _Room, num_printed: int) -> list[LedgerEntry]:
    """What no printed number accounts for, with what it may be."""
    if room.left is None:
        return []
    free: list[LedgerEntry] = []
    if numbers.free is None:
        free = [LedgerEntry("free (not printed: within the unknown part)", None, "free", "printed")]
    if room.left == 0:
        return free
    if room.left <= _HALF_DIGIT * (num_printed + 1) and numbers.free is not None:
        return [LedgerEntry("unknown: within the rounding of the printed numbers", room.left, "unknown", "computed")]
    known = numbers.process is not None or numbers.likely_this is not None
    causes = ["free memory"] if numbers.free is None else []
    if not known:
        causes.append(_UNSEEN.get(found.backend, _UNSEEN_HERE))
        if numbers.allocated is None:
            causes.append("the allocator of this process")
        elif numbers.slack is None:
            causes.append("what it has reserved but not allocated")
    causes.append("other processes (a container does not see them), the driver's own" if known else "other processes")
    return [*free, LedgerEntry(f"unknown: {' or '.join([', '.join(causes[:-1]), causes[-1]] if causes[:-1] else causes)}",
                               room.left, "unknown", "computed")]  # fmt: skip


def _of_host(numbers: Numbers) -> tuple[LedgerEntry, ...]:
    """The memory of the computer, where a message prints it."""
    if numbers.total is None:
        return ()
    room = _Room(numbers.total)
    used = [] if numbers.allocated is None else room.take("in use on the host", numbers.allocated, "unknown", "printed")
    free = [] if numbers.free is None else room.take("free", numbers.free, "free", "printed")
    rest = [LedgerEntry("not in use, or not printed", room.left, "unknown", "computed")] if room.left else []
    return (*used, *free, *rest, LedgerEntry("total", numbers.total, "total", "printed"))
