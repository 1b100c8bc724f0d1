"""The facts that decide why memory ran out, from a message or a trace; None if the source lacks a fact.

*slack* is reserved memory that no tensor uses. *outside* is memory that is neither free nor reserved here: the device
context and libraries of this process, and all memory of other processes. The number that PyTorch prints as allocated
includes the free blocks of private pools (CUDA graphs, MemPool), so live tensors are ``allocated - pool``. Messages up
to PyTorch 1.3 call slack "cached".

A message prints two decimals of a unit, and the size of the segment instead of the request. A trace is exact and knows
the free blocks, but often neither the size of the device nor its other processes.

In some containers and virtual machines the driver reports no memory per process, and PyTorch prints "this process has 0
bytes memory in use". Such a figure is not used (``Facts.from_fields``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memdiag.diagnosis.thresholds import ALLOWANCE, ALLOWANCES, JUST_OVER, ROUNDING, SMALL_SLACK


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a failed request; sizes in bytes, None if unknown.

    Attributes:
        requested: Size of the driver request (or of the request to the pool): usually a whole segment.
        total: Size of the device.
        free: Free memory of the device, as the driver reports it.
        allocated: Bytes of blocks in use, plus ``pool``.
        slack: Bytes that are reserved and not allocated; a trace excludes pending bytes.
        reserved: Bytes that this allocator has reserved from the driver.
        pool: Free bytes in private pools that the request cannot use.
        limit: Bytes that this process may reserve.
        process: All memory of this process on the device, as the driver reports it.
        others: Other processes, (pid, bytes).
        listed: Processes that may include this one, (pid, bytes).
        allowance: Normal memory of this process outside its allocator; only more than this needs an explanation.
        backend: "cuda", "npu", …
        framework: Framework that printed the message; "" for a trace.
        is_printed: Whether the facts come from a message.
        is_counted: Whether the free blocks of a trace were counted, so that the numbers are exact.
        request: The program's request, rounded by the allocator; a message does not contain it.
        pending: Bytes that are freed but wait for a stream; 0 if unknown.
        fits: Whether a free block of the request's own pool and stream is large enough.
        private: Total bytes of private pools; 0 if unknown.
    """

    requested: int | None = None
    total: int | None = None
    free: int | None = None
    allocated: int | None = None
    slack: int | None = None
    reserved: int | None = None
    pool: int = 0
    limit: int | None = None
    process: int | None = None
    others: tuple[tuple[int, int], ...] = ()
    listed: tuple[tuple[int, int], ...] = ()
    allowance: int = ALLOWANCE
    backend: str = "cuda"
    framework: str = ""
    is_printed: bool = True
    is_counted: bool = False
    request: int | None = None
    pending: int = 0
    fits: bool | None = None
    private: int = 0

    @classmethod
    def from_fields(cls, fields: Mapping[str, object], backend: str = "cuda", framework: str = "") -> Facts:
        """Returns the facts in a message; a value that is not a whole number of bytes counts as not printed."""
        allocated, cached = _size(fields, "allocated"), _size(fields, "cached")
        slack, reserved = _size(fields, "unallocated"), _size(fields, "reserved")
        slack = cached if slack is None else slack
        if slack is None and reserved is not None and allocated is not None:
            slack = max(reserved - allocated, 0)
        if reserved is None and slack is not None and allocated is not None:
            reserved = allocated + slack
        other = _size(fields, "other_alloc")
        if other and allocated is not None and reserved is None:
            reserved = allocated + other
        total, free, process = (_size(fields, name) for name in ("total", "free", "process"))
        if process is not None and not _is_believable(process, allocated, total, free):
            process = None
        return cls(
            requested=_size(fields, "requested"),
            total=total,
            free=free,
            allocated=allocated,
            slack=slack,
            reserved=reserved,
            pool=min(_size(fields, "private_pool") or 0, allocated or 0),
            limit=_size(fields, "limit"),
            process=process,
            others=_pairs(fields.get("other_processes")),
            listed=_pairs(fields.get("processes")),
            allowance=ALLOWANCES.get(backend, ALLOWANCE),
            backend=backend,
            framework=framework,
        )

    @property
    def needed(self) -> int:
        """Bytes that must be free in one block: the request, or the segment if only that is known."""
        return next((size for size in (self.request, self.requested) if size is not None), 0)

    @property
    def usable(self) -> int:
        """Bytes that would serve the request in one block.

        They are slack, and the device's free memory if that is too small for a segment.
        """
        left = self.free or 0
        return (self.slack or 0) + (left if left < (self.requested or 0) else 0)

    @property
    def asks_for_half(self) -> bool:
        """True if the request is larger than half of the device: this tensor matters more than the batch size."""
        return bool(self.total and (self.requested or 0) > self.total // 2)

    @property
    def missing_below_limit(self) -> int | None:
        """Bytes by which the limit is too low for the request; None without a limit."""
        return None if self.limit is None else max((self.held or 0) + (self.requested or 0) - self.limit, 0)

    @property
    def room_above_limit(self) -> int | None:
        """Bytes by which the limit can be raised; None if unknown."""
        room = None if self.limit is None or self.total is None else max(self.total - self.limit, 0)
        return min((size for size in (room, self.free) if size is not None), default=None)

    @property
    def missing(self) -> int:
        """Bytes that are missing even if all usable bytes formed one block; negative if they are enough."""
        return self.needed - self.usable

    @property
    def error(self) -> int:
        """Error of a sum of two of these numbers, in bytes."""
        return 0 if self.is_counted else ROUNDING

    @property
    def has_much_slack(self) -> bool:
        """True if slack alone would serve the request, and exceeds that of any ordinary run."""
        slack = self.slack or 0
        reference = self.total if self.total is not None else self.reserved
        return slack >= self.needed and slack >= SMALL_SLACK * (reference or 0)

    @property
    def is_in_pieces(self) -> bool:
        """True if the usable bytes would serve the request with a margin if they formed one block.

        They must also be more than a full device has left.
        """
        is_enough = (self.free or 0) < (self.requested or 0) and self.usable >= JUST_OVER * self.needed
        return self.has_much_slack or (is_enough and self.share(self.usable) >= SMALL_SLACK)

    @property
    def live(self) -> int | None:
        """Bytes of blocks in use."""
        return None if self.allocated is None else max(self.allocated - self.pool, 0)

    @property
    def held(self) -> int | None:
        """Lower bound of this process's memory: reserved, else allocated, else all that the driver reports."""
        return next((value for value in (self.reserved, self.allocated, self.process) if value is not None), None)

    @property
    def outside(self) -> int | None:
        """Memory that is neither free nor reserved here; includes slack if ``reserved`` is not printed.

        Never negative.
        """
        if self.total is None or self.free is None:
            return None
        held = self.allocated if self.reserved is None else self.reserved
        return None if held is None else max(self.total - self.free - held, 0)

    @property
    def own_outside(self) -> int | None:
        """Memory of this process outside its allocator, or None without a line for this process."""
        return None if self.process is None or self.reserved is None else max(self.process - self.reserved, 0)

    @property
    def foreign(self) -> int | None:
        """Memory of other processes: all of ``outside`` if nothing separates them."""
        if self.process is None:
            return self.outside
        if self.total is None or self.free is None:
            return sum(size for _, size in self.others)
        return max(self.total - self.free - self.process, 0)

    @property
    def foreign_excess(self) -> int:
        """Memory of others beyond this process's possible own context; 0 if unknown."""
        if self.process is not None:
            return self.foreign or 0
        return max((self.foreign or 0) - self.allowance, 0)

    @property
    def likely_this(self) -> tuple[int, int] | None:
        """The listed process whose size matches the reserved memory best; None if a line marks this process."""
        if self.process is not None or self.reserved is None:
            return None
        likely = [
            (pid, size)
            for pid, size in self.listed
            if self.reserved <= size + ROUNDING and size - self.reserved <= 4 * self.allowance
        ]
        return min(likely, key=lambda entry: entry[1]) if likely else None

    @property
    def strangers(self) -> tuple[tuple[int, int], ...]:
        """Other listed processes: (pid, bytes), in the printed order."""
        this = self.likely_this
        return self.others or (tuple(entry for entry in self.listed if entry[0] != this[0]) if this else self.listed)

    @property
    def oversubscribed(self) -> bool:
        """True if more bytes are allocated than the device has."""
        return self.total is not None and self.allocated is not None and self.allocated > self.total * 1.001

    def share(self, size: int | None) -> float:
        """Returns ``size`` as a fraction of the device.

        In a trace without the device size, it is a fraction of reserved memory. It is 0 if either is unknown.
        """
        whole = self.total or (self.reserved if self.is_counted else None)
        return size / whole if size and whole else 0.0


def _is_believable(process: int, allocated: int | None, total: int | None, free: int | None) -> bool:
    """Returns whether the driver's number for this process is plausible: it covers the allocated bytes.

    Sleeping pools count as allocated although their pages were released. In that case, the whole device holds less than
    is allocated.
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
