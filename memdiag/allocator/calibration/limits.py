"""The memory that was available to the allocator, as stated in the file or as proven by failed requests.

Two sizes must not be confused. The card is the total memory of the device according to its driver. The room is the part
that the allocator could reserve. The rest was outside the allocator: the context, buffers of NCCL or HCCL, and other
processes.

memdiag's own recordings include the memory outside the allocator (``trace.card``). Other files have neither that nor
the per-process memory fraction. There, a request that the driver refused proves that less memory was free than
requested. Each reserved range proves that this much was free, and an out-of-memory entry has the free bytes.
If no request was refused, no limit was reached.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from memdiag.sizes.cuda import SMALL_SEGMENT
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array

if TYPE_CHECKING:
    from memdiag.allocator.calibration.entries import Failures

_NO_STEPS = np.empty((0, 2), np.int64)


@dataclass(frozen=True)
class Limits:
    """The memory that was available to the allocator.

    Attributes:
        capacity_bytes: Size of the card; if ``is_known`` is False, the room, inferred from refused requests; None:
            unknown.
        is_known: The file has the size of the card.
        steps: Memory that others held, and from which event on (rows: event, bytes; int64).
        num_refused: Requests that the driver refused at first.
        limit_bytes: Limit of the process itself, inferred from refused requests or garbage collection; None: unknown.
        limit_range: Lower and upper bound of that limit in bytes, the upper excluded.
        outside_basis: Evidence for the memory outside the allocator: "recorded" (reported by the driver), "refused"
            (requests that the driver refused), "given" (by the user); "": no evidence, and assumed to be zero.
        share: The per-process memory fraction, as recorded; None: unknown, or not set.
    """

    capacity_bytes: int | None
    is_known: bool
    steps: Array = field(default_factory=lambda: _NO_STEPS)
    num_refused: int = 0
    limit_bytes: int | None = None
    limit_range: tuple[int, int] = (0, 0)
    outside_basis: str = ""
    share: float | None = None

    @property
    def outside_bytes(self) -> int | None:
        """Upper bound of the bytes of the card outside the allocator; None: unknown."""
        if not self.outside_basis:
            return None
        return int(self.steps[:, 1].max()) if len(self.steps) else 0

    @property
    def fraction(self) -> float | None:
        """The limit of the process as a fraction of the device; None: unknown."""
        if self.limit_bytes is None or not self.capacity_bytes:
            return None
        return (self.limit_bytes + 0.5) / self.capacity_bytes  # the allocator truncates the product to whole bytes

    @property
    def others_bytes(self) -> int:
        """Bytes of other processes at the end."""
        return int(self.steps[-1, 1]) if len(self.steps) else 0


def limits_of(device: DeviceTrace, failures: Failures) -> Limits:
    """Returns the limits that the recording proves.

    If two failures contradict each other, the memory of other processes changed between them.
    """
    return _with_card(_proved(device, failures), device)


def _with_card(limits: Limits, device: DeviceTrace) -> Limits:
    """Returns limits from the recorder's samples of the driver, if failures do not prove any."""
    card, capacity = device.card, device.capacity_bytes
    if capacity is None:
        return limits
    held = max(int(device.usage.reserved.max(initial=0)), device.start["reserved"])
    limit = int((card.fraction or 1) * capacity)
    if held <= limit < capacity:
        limits = replace(limits, limit_bytes=limit, limit_range=(limit, limit + 1), share=card.fraction)
    outside = card.outside_bytes
    if len(limits.steps):
        return replace(limits, outside_basis="refused" if outside is None else "recorded")
    if outside is None:
        return limits
    # at the reserved peak, less was outside, since the device had room for the reserved memory
    outside = max(min(outside, capacity - held), 0)
    steps = np.array([(0, outside)], np.int64) if outside else _NO_STEPS
    return replace(limits, steps=steps, outside_basis="recorded")


def _proved(device: DeviceTrace, failures: Failures) -> Limits:
    """Returns the limits that failures prove."""
    known = device.capacity_bytes
    found = _own_limit(device, failures)
    if found is not None and (known is None or found[0] < known):
        # the device has more than this, otherwise the limit would have no effect
        limit, bounds = found
        return Limits(known or _seen(failures, limit), known is not None, _NO_STEPS, len(failures.at), limit, bounds)
    if not len(failures.at):
        return Limits(known, known is not None)
    pieces = _pieces(device, failures)
    if all(room < 0 for _, room in pieces):
        return Limits(known, known is not None)
    most = max(room for _, room in pieces)
    capacity = max(known, most) if known is not None else most
    steps = np.array([(begin, capacity - room) for begin, room in pieces], np.int64)
    steps = steps[np.append(True, steps[1:, 1] != steps[:-1, 1])]
    if len(steps) == 1 and not steps[0, 1]:
        steps = _NO_STEPS
    return Limits(capacity, known is not None, steps, len(failures.at))


def _seen(failures: Failures, limit: int) -> int:
    """Returns an estimate of the device memory, given the limit of the process."""
    held = failures.before + failures.hidden + failures.device_free
    totals = held[failures.device_free >= 0]
    return max(
        int(totals.max(initial=0)), round(limit / failures.shares.fraction) if failures.shares.fraction else 2 * limit
    )


def _own_limit(device: DeviceTrace, failures: Failures) -> tuple[int, tuple[int, int]] | None:
    """Returns the limit of the process (its memory fraction), inferred from the recording, and its bounds.

    None: no evidence of a limit. Evidence is the setting, garbage collection (which begins when more than a fraction of
    the limit is reserved), or failures while the driver had enough. The limit is between the largest granted and the
    smallest refused total.
    """
    shares, failed = failures.shares, failures.failed
    refused_with_room = failed & (failures.device_free >= failures.mapped)
    collects = bool(shares.threshold) and not bool(failed.all())
    if not len(failures.at) or not (shares.fraction is not None or collects or refused_with_room.any()):
        return None
    if shares.fraction is not None and device.capacity_bytes is not None:
        return None  # the setting has the limit
    below = failures.before + failures.need
    if shares.threshold:  # the releases may have either reason
        below = np.where(failed, below, np.maximum(below, (failures.before / shares.threshold).astype(np.int64) + 1))
    low, high = failures.granted, int(below.min())
    if low >= high:
        return None
    totals = failures.before[failed] + failures.hidden[failed] + failures.device_free[failed]
    totals = totals[failures.device_free[failed] >= 0]
    likely = [int((shares.fraction or 0) * capacity) for capacity in sorted(set(totals.tolist()), reverse=True)]
    return next((limit for limit in likely if low <= limit < high), low), (low, high)


def _pieces(device: DeviceTrace, failures: Failures) -> list[tuple[int, int]]:
    """Returns the available bytes over time (event, bytes), with the fewest changes that explain every result."""
    events, reserved = device.events, device.usage.reserved
    outside = device.card.outside_bytes
    # free bytes according to the driver
    asked = -1 if outside is None or device.capacity_bytes is None else device.capacity_bytes - outside
    opened = np.flatnonzero(np.isin(events.action, (schema.SEGMENT_ALLOC, schema.SEGMENT_MAP)))
    hidden = failures.hidden_after
    needs = (-(-failures.mapped // SMALL_SEGMENT) * SMALL_SEGMENT).tolist()  # in whole pages, as the device gives it
    befores = (failures.before + failures.hidden).tolist()
    marks: list[tuple[int, int, int, int]] = [
        (int(at), int(reserved[at] + hidden[at + 1]), 1 << 62, -1) for at in opened.tolist()
    ]
    for at, begins, before, need, failed, free in zip(
        failures.at.tolist(),
        failures.begins.tolist(),
        befores,
        needs,
        failures.failed.tolist(),
        failures.device_free.tolist(),
        strict=True,
    ):
        if failures.shares.threshold and not failed:
            continue  # garbage collection may have released it
        # The bytes left at a failure give the exact room. If they would have been enough for the request, the limit of
        # the process refused it instead.
        exact = before + free if failed and 0 <= free < need else -1
        marks.append((at if failed else begins - 1, max(exact, 0), before + need, exact))
    marks.sort(key=lambda mark: mark[0])
    pieces: list[tuple[int, int]] = []
    begin, low, high, said = -1, device.start["reserved"], 1 << 62, -1
    for at, at_least, below, exact in marks:
        if (
            max(low, at_least) < min(high, below)
            and (exact < 0 or said < 0 or exact == said)
            and (said < 0 or at_least <= said < below)
            and (exact < 0 or low <= exact < high)
        ):
            low, high, said = max(low, at_least), min(high, below), max(said, exact)
            continue
        pieces.append((begin + 1, _room(said, low, high, asked)))
        begin, low, high, said = at - 1, max(at_least, 0), below, exact
    pieces.append((begin + 1, _room(said, low, high, asked)))
    # A stretch without a refusal has the room of its neighbour, but at least the bytes that it held.
    rooms = [room for _, room in pieces]
    bound = [room if room >= 0 else max(rooms) for room in rooms]  # no stretch has a refusal if all are below 0
    return [(start, room) for (start, _), room in zip(pieces, bound, strict=True)]


def _room(said: int, at_least: int, below: int, asked: int) -> int:
    """Returns the available bytes in a stretch of a recording; -1: no request was refused in it.

    Args:
        said: Value from a failed allocation; -1: none.
        at_least, below: Largest granted and smallest refused total.
        asked: Value reported by the driver; -1: none.
    """
    if said >= 0:
        return said
    if below == 1 << 62:
        return -1
    return asked if at_least <= asked < below else at_least
