"""The account of a device's memory at the failure.

Every byte of the device belongs to a process, is free, or is reported as unknown.

The driver's numbers (free memory, processes) come first, then those of the allocator. An allocator may count more than
the remaining room (oversubscribed devices, sleeping pools whose pages were released). The excess is not on the device:
the entry is cut to the remaining room and names the size that was counted.
"""

from __future__ import annotations

from memdiag.diagnosis.facts import Facts
from memdiag.oom.frameworks import ON_TORCH
from memdiag.oom.model import Found
from memdiag.results.oom import LedgerEntry
from memdiag.text import Phrase, joined, phrase
from memdiag.units import KIB, MIB, format_bytes

# Half of the last printed digit ("12.34 GiB"): the error of a printed size.
_HALF_DIGIT = 10 * MIB // 2 + 128 * KIB


def account(found: Found) -> tuple[LedgerEntry, ...]:
    """Returns the ledger of a message: parts that add up to the total, which comes last; empty without numbers.

    If the total is not printed, its size is None, and only the printed parts are listed, without a remainder.
    """
    numbers = Facts.from_fields(found.fields, found.backend)
    if found.backend == "cpu":
        return _of_host(numbers)
    room = _RemainingRoom(numbers.total)
    free = [] if numbers.free is None else room.take(phrase("oom_ledger.free"), numbers.free, "free", "printed")
    whose = found.allocator or ("PyTorch" if found.framework in ON_TORCH else found.program or found.framework)
    own = _own(
        numbers, room, whose, "printed" if {"unallocated_bytes", "cached_bytes"} & found.fields.keys() else "computed"
    )
    others = _others(numbers, room)
    if not (free or own or others):
        return ()  # at most the size of the device is known: no account
    total = LedgerEntry(phrase("oom_ledger.total"), numbers.total, "total", "printed")
    return (*own, *others, *free, *_rest(found, numbers, room, len(own) + len(others) + len(free)), total)


class _RemainingRoom:
    """The remaining room on the device while entries are laid out."""

    def __init__(self, total: int | None) -> None:
        self.left = total

    def take(self, what: str, size: int, owner: str, basis: str) -> list[LedgerEntry]:
        """Lays out an entry, cut to the remaining room; nothing for 0 bytes."""
        fitting = size if self.left is None else min(size, self.left)
        if self.left is not None:
            self.left -= fitting
        if size - fitting > 2 * _HALF_DIGIT:
            sizes = {"size": format_bytes(size), "over": format_bytes(size - fitting)}
            what, basis = phrase("oom_ledger.counted", what=what, **sizes), "inferred"
        elif fitting != size:
            basis = "computed"  # too large because printed numbers are rounded
        if size == 0 and owner != "free":
            return []
        return [LedgerEntry(what, fitting, owner, basis)]  # type: ignore[arg-type]  # literals of this file


def _own(numbers: Facts, room: _RemainingRoom, whose: str, slack_basis: str) -> list[LedgerEntry]:
    """Returns the entries of this process: the numbers of its allocator, then the rest reported by the driver."""
    likely = numbers.likely_this
    process = likely[1] if likely else numbers.process
    inside = room if process is None else _RemainingRoom(process if room.left is None else min(process, room.left))
    before = inside.left
    held = numbers.slack if numbers.slack is not None else 0
    entries = []
    # Slack and free blocks of pools keep their pages longest, so they are laid out first; the report shows them after
    # live memory.
    unused = inside.take(phrase("oom_ledger.unallocated"), held, "this process", slack_basis)
    pools = inside.take(phrase("oom_ledger.pools"), numbers.pool, "this process", "printed")
    if numbers.live is not None:
        basis = "computed" if numbers.pool else "printed"
        what = (
            phrase("oom_ledger.allocated.by", framework=whose)
            if numbers.slack is not None
            else phrase("oom_ledger.allocated")
        )
        entries = inside.take(what, numbers.live, "this process", basis)
    if numbers.slack is None and numbers.reserved is not None and numbers.allocated is not None:
        entries += inside.take(
            phrase("oom_ledger.other"), max(numbers.reserved - numbers.allocated, 0), "this process", "printed"
        )
    entries += [*pools, *unused]
    if process is None or inside.left is None:
        return entries
    what = _outside_here(numbers) if numbers.allocated is not None else phrase("oom_ledger.this")
    if likely:
        what = phrase("oom_ledger.likely", what=what, pid=str(likely[0]))
    rest = inside.take(
        what, inside.left, "this process", "inferred" if likely else "computed" if entries else "printed"
    )
    if room.left is not None and before is not None:
        room.left -= before
    return entries + rest


def _outside_here(numbers: Facts) -> Phrase:
    return phrase("oom_ledger.outside") if numbers.slack is not None else phrase("oom_ledger.outside.slack")


def _others(numbers: Facts, room: _RemainingRoom) -> list[LedgerEntry]:
    """Returns every other listed process."""
    return [
        entry
        for pid, size in numbers.strangers
        for entry in room.take(phrase("oom_ledger.process", pid=str(pid)), size, "other processes", "printed")
    ]


def _rest(found: Found, numbers: Facts, room: _RemainingRoom, num_printed: int) -> list[LedgerEntry]:
    """Returns the memory that no printed number accounts for, with its possible owners."""
    if room.left is None:
        return []
    free: list[LedgerEntry] = []
    if numbers.free is None:
        free = [LedgerEntry(phrase("oom_ledger.free.unknown"), None, "free", "printed")]
    if room.left == 0:
        return free
    if room.left <= _HALF_DIGIT * (num_printed + 1) and numbers.free is not None:
        return [LedgerEntry(phrase("oom_ledger.rounding"), room.left, "unknown", "computed")]
    owners = joined(_owners(found, numbers), phrase("oom_ledger.or"))
    return [*free, LedgerEntry(phrase("oom_ledger.unknown", owners=owners), room.left, "unknown", "computed")]


def _owners(found: Found, numbers: Facts) -> list[Phrase]:
    """Returns the possible owners of the memory that no number accounts for."""
    owners = [phrase("oom_ledger.owner.free")] if numbers.free is None else []
    if numbers.process is not None or numbers.likely_this is not None:
        return [*owners, phrase("oom_ledger.owner.hidden")]
    if found.backend != "mps":
        owners.append(phrase("oom_ledger.owner.npu") if found.backend == "npu" else phrase("oom_ledger.outside"))
    if numbers.allocated is None:
        owners.append(phrase("oom_ledger.owner.allocator"))
    elif numbers.slack is None:
        owners.append(phrase("oom_ledger.owner.unallocated"))
    return [*owners, phrase("oom_ledger.owner.others")]


def _of_host(numbers: Facts) -> tuple[LedgerEntry, ...]:
    """Returns the memory of the host, if the message prints it."""
    if numbers.total is None:
        return ()
    room = _RemainingRoom(numbers.total)
    used = (
        []
        if numbers.allocated is None
        else room.take(phrase("oom_ledger.host"), numbers.allocated, "unknown", "printed")
    )
    free = [] if numbers.free is None else room.take(phrase("oom_ledger.free"), numbers.free, "free", "printed")
    rest = [LedgerEntry(phrase("oom_ledger.host.rest"), room.left, "unknown", "computed")] if room.left else []
    return (*used, *free, *rest, LedgerEntry(phrase("oom_ledger.total"), numbers.total, "total", "printed"))
