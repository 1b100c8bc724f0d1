"""The facts that decide why memory ran out, read from a message or from a trace; None where a source does not have one.

*slack* is what the allocator has reserved and no tensor uses. *outside* is what is neither free nor reserved here: the
device context and libraries of this process, and everything of other processes. What PyTorch prints as allocated counts
the free blocks of private pools as well (CUDA graphs, MemPool), so live tensors are ``allocated - pool``. Messages up
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
    """Sizes in bytes.

    Attributes:
        requested: Size of the driver request (or of the request to the pool): usually a whole segment.
        total: Size of the device.
        free: Free memory of the device, as the driver reports it.
        allocated: Bytes of blocks in use, plus ``pool``.
        slack: Bytes that are reserved and not allocated; in a trace without those waiting for a stream.
        reserved: Bytes that this allocator holds from the driver.
        pool: Free bytes in private pools that the request cannot use.
        limit: What this process may reserve.
        process: All memory of this process on the device, as the driver reports it.
        others: Other processes, (pid, bytes).
        listed: Processes of which one may be this, (pid, bytes).
        allowance: What this process may hold outside its allocator without further reason.
        backend: "cuda", "npu", …
        framework: Whose message it is; "" for a trace.
        is_printed: A message was read.
        is_counted: The free blocks of a trace were counted, so numbers are exact.
        request: The request of the program, rounded by the allocator; a message does not contain it.
        pending: Bytes that are freed but wait for a stream; 0 if that is unknown.
        fits: Whether a free block of the request's own pool and stream is large enough.
        private: All bytes of private pools; 0 if that is unknown.
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
        """Bytes that must be free in one block: the request, or the segment where only that is known."""
        return next((size for size in (self.request, self.requested) if size is not None), 0)

    @property
    def usable(self) -> int:
        """Bytes that would serve the request in one block: slack, and what the device has left if that is too little for a segment."""
        left = self.free or 0
        return (self.slack or 0) + (left if left < (self.requested or 0) else 0)

    @property
    def missing(self) -> int:
        """Bytes short even in one block; negative where the usable bytes are enough."""
        return self.needed - self.usable

    @property
    def error(self) -> int:
        """Bytes by which a sum of two of these numbers may be wrong."""
        return 0 if self.is_counted else ROUNDING

    @property
    def has_much_slack(self) -> bool:
        """Whether slack alone would serve the request, and is more than any run leaves."""
        slack = self.slack or 0
        reference = self.total if self.total is not None else self.reserved
        return slack >= self.needed and slack >= SMALL_SLACK * (reference or 0)

    @property
    def is_in_pieces(self) -> bool:
        """Whether one block of all usable bytes would serve the request with a margin, and they are more than a full device leaves."""
        is_enough = (self.free or 0) < (self.requested or 0) and self.usable >= JUST_OVER * self.needed
        return self.has_much_slack or (is_enough and self.share(self.usable) >= SMALL_SLACK)

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
        """What is neither free nor reserved here; with slack in it where ``reserved`` is not printed.

        Never negative.
        """
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
            (pid, size)
            for pid, size in self.listed
            if self.reserved <= size + ROUNDING and size - self.reserved <= 4 * self.allowance
        ]
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
        """Returns ``size`` as a share of the device (in a trace that lacks its size, of reserved memory); 0 where either is unknown."""
        whole = self.total or (self.reserved if self.is_counted else None)
        return size / whole if size and whole else 0.0


def _is_believable(process: int, allocated: int | None, total: int | None, free: int | None) -> bool:
    """Returns whether the driver's figure for this process can be right: it covers what the allocator counts as allocated.

    Sleeping pools count as allocated although their pages were given back. Then the whole device holds less than is
    allocated.
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
