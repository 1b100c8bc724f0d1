"""The numbers of an allocator's message, and what follows from them by adding and subtracting; None where that needs one not printed.

*slack* is what the allocator has reserved and no tensor uses. *outside* is what is neither free nor reserved here: the device
context and libraries of this process, and everything of other processes. What PyTorch prints as allocated counts the free blocks of
private pools as well (CUDA graphs, MemPool), so live tensors are ``allocated - pool``. Messages up to PyTorch 1.3 call slack "cached".

In some containers and virtual machines the driver reports no memory per process, and PyTorch prints "this process has 0 bytes memory in
use". Such a figure is not used (``numbers_of``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memdiag.text import phrase
from memdiag.units import GIB, MIB

# What one process takes beside its allocator, at most, before anything else must be at work: context, kernels, libraries and, on
# Ascend, HCCL (2 x 200 MB a communicator) and operator workspaces.
ALLOWANCES = {"npu": 3 * GIB, "hip": 3 * GIB // 2, "xpu": GIB // 2}
ALLOWANCE = GIB

LARGE_SEGMENT = 20 * MIB
ROUNDING = 11 * MIB  # two printed GiB of two decimals may be wrong by that much together


@dataclass(frozen=True, slots=True)
class Numbers:
    """What is printed, in bytes.

    Attributes:
        requested: What was asked of the driver (or of the pool): usually a whole segment.
        total: Size of the card.
        free: What the driver has left.
        allocated: In blocks that are handed out, with ``pool``.
        slack: Reserved and not allocated.
        reserved: Held from the driver by this allocator.
        pool: Free in private pools.
        limit: What this process may reserve.
        process: All of this process on the card, as the driver sees it.
        others: Other processes, (pid, bytes).
        listed: Processes of which one may be this, (pid, bytes).
        allowance: What this process may take outside its allocator without further reason.
    """

    requested: int | None
    total: int | None
    free: int | None
    allocated: int | None
    slack: int | None
    reserved: int | None
    pool: int
    limit: int | None
    process: int | None
    others: tuple[tuple[int, int], ...]
    listed: tuple[tuple[int, int], ...]
    allowance: int

    @property
    def live(self) -> int | None:
        """Bytes of blocks in use."""
        return None if self.allocated is None else max(self.allocated - self.pool, 0)

    @property
    def held(self) -> int | None:
        """What this process holds at least: reserved, else allocated, else all that the driver sees of it."""
        return next((value for value in (self.reserved, self.allocated, self.process) if value is not None), None)

    @property
    def outside(self) -> int | None:
        """What is neither free nor reserved here; with slack in it where ``reserved`` is not printed. Never negative."""
        if self.total is None or self.free is None:
            return None
        held = self.allocated if self.reserved is None else self.reserved
        return None if held is None else max(self.total - self.free - held, 0)

    @property
    def own_outside(self) -> int | None:
        """What this process takes outside its allocator; None without a line for this process."""
        return None if self.process is None or self.reserved is None else max(self.process - self.reserved, 0)

    @property
    def foreign(self) -> int | None:
        """What is not this process': all of ``outside`` where no line tells them apart."""
        if self.process is None:
            return self.outside
        if self.total is None or self.free is None:
            return sum(size for _, size in self.others)
        return max(self.total - self.free - self.process, 0)

    @property
    def foreign_excess(self) -> int:
        """What others hold beyond what this process' own context may explain; 0 if that cannot be told."""
        if self.process is not None:
            return self.foreign or 0
        return max((self.foreign or 0) - self.allowance, 0)

    @property
    def likely_this(self) -> tuple[int, int] | None:
        """Of several processes that are listed without saying which is this one, the one that what is reserved here fits best."""
        if self.process is not None or self.reserved is None:
            return None
        likely = [
            (pid, size) for pid, size in self.listed
            if self.reserved <= size + ROUNDING and size - self.reserved <= 4 * self.allowance
        ]  # fmt: skip
        return min(likely, key=lambda entry: entry[1]) if likely else None

    @property
    def strangers(self) -> tuple[tuple[int, int], ...]:
        """Other processes as far as they are listed: (pid, bytes), in the order in which they are printed."""
        this = self.likely_this
        return self.others or (tuple(entry for entry in self.listed if entry[0] != this[0]) if this else self.listed)

    @property
    def oversubscribed(self) -> bool:
        """Whether more is counted as allocated than the card has."""
        return self.total is not None and self.allocated is not None and self.allocated > self.total * 1.001

    def share(self, size: int | None) -> float:
        """Returns ``size`` as a part of the card; 0 where either is not known."""
        return size / self.total if size and self.total else 0.0


def numbers_of(fields: Mapping[str, object], backend: str = "cuda") -> Numbers:
    """Returns the numbers in ``fields``; what is not a whole number of bytes counts as not printed."""
    allocated, cached = _size(fields, "allocated"), _size(fields, "cached")
    slack, reserved = _size(fields, "unallocated"), _size(fields, "reserved")
    slack = cached if slack is None else slack
    if slack is None and reserved is not None and allocated is not None:
        slack = max(reserved - allocated, 0)
    if reserved is None and slack is not None and allocated is not None:
        reserved = allocated + slack
    other = _size(fields, "other_alloc")
    total, free, process = (_size(fields, name) for name in ("total", "free", "process"))
    others, listed = _pairs(fields.get("other_processes")), _pairs(fields.get("processes"))
    if process is not None and not _is_believable(process, allocated, total, free):
        process = None
    return Numbers(
        _size(fields, "requested"), total, free, allocated, slack,
        allocated + other if other and allocated is not None and reserved is None else reserved,
        min(_size(fields, "private_pool") or 0, allocated or 0), _size(fields, "limit"), process,
        others, listed, ALLOWANCES.get(backend, ALLOWANCE),
    )  # fmt: skip


def _is_believable(process: int, allocated: int | None, total: int | None, free: int | None) -> bool:
    """Returns whether the driver's figure for this process can be right: it covers what the allocator counts as allocated.

    Sleeping pools count as allocated although their pages were given back. Then the whole device holds less than is allocated.
    """
    if process == 0:
        return False
    if allocated is None or process + ROUNDING >= allocated:
        return True
    return total is not None and free is not None and total - free + ROUNDING < allocated


def _size(fields: Mapping[str, object], name: str) -> int | None:
    value = fields.get(f"{name}_bytes")
    return value if isinstance(value, int) and value >= 0 else None


def _pairs(value: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list | tuple):
        return ()
    pairs = (tuple(pair) for pair in value if isinstance(pair, list | tuple) and len(pair) == 2)
    return tuple((pid, size) for pid, size in pairs if isinstance(pid, int) and isinstance(size, int) and size >= 0)


def segment_behind(size: int) -> str:
    """Returns what tensor stands behind a segment that the caching allocator wanted from the driver, in words; "" if that is open."""
    if size == 2 * MIB:
        return phrase("oom_device.segment.small")
    if size == LARGE_SEGMENT:
        return phrase("oom_device.segment.large")
    if size > 10 * MIB:
        return phrase("oom_device.segment.rounded")
    return ""
